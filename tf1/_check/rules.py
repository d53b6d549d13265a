"""Contains the tables of `python -m tf1 --check`: names that no longer exist, and the replacement for each
name."""

import dataclasses
import re

from tf1._names.namespace import rows

PYTHON2, PYTHON3, SYNTAX = "Python 2", "Python 3", "syntax"
NUMPY, TENSORFLOW, PACKAGE = "NumPy", "TensorFlow", "package"


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """Describes a problem in a line of the program.

    Without `note`, the line will not run. With `note`, the line runs, but it may behave differently than the
    author of the program expected.

    Attributes:
      line: number of the line.
      kind: one of the constants above.
      what: description of what is wrong.
      instead: the code to write instead; "" if no replacement is known.
      note: whether the finding is only a note.
    """

    line: int
    kind: str
    what: str
    instead: str
    note: bool = False

    def __str__(self):
        instead = f"; write {self.instead}" if self.instead else ""
        return f"{self.line}: {'note: ' if self.note else ''}{self.what}{instead}"


def code(instead):
    """Returns the replacement for a piece of code, in backticks if the replacement is itself code. A phrase,
    such as "int() or float()", is returned without backticks."""
    return instead if re.search(r"[a-z]: |`|\bthe package\b| or | in place ", instead) else f"`{instead}`"


def shortened(code, most=70):
    """Returns code on one line, truncated to at most `most` characters."""
    code = re.sub(r"\s*\\?\s*\n\s*", " ", code)
    return code if len(code) <= most else f"{code[:most - 1]}…"


# --- Python ----------------------------------------------------------------------------------------------

# Maps each builtin of Python 2 to the code that replaces it in Python 3.
BUILTINS = dict(rows("""
    apply         function(*arguments)
    basestring    str
    buffer        memoryview
    cmp           (a > b) - (a < b), or key= of sort
    coerce        int() or float()
    execfile      exec(open(path).read())
    file          open
    intern        sys.intern
    long          int
    raw_input     input
    reduce        functools.reduce
    reload        importlib.reload
    StandardError Exception
    unichr        chr
    unicode       str
    xrange        range
"""))

# Maps each module of Python 2 to the module of Python 3 that replaces it.
MODULES = dict(rows("""
    BaseHTTPServer   http.server
    ConfigParser     configparser
    Cookie           http.cookies
    HTMLParser       html.parser
    Queue            queue
    SimpleHTTPServer http.server
    SocketServer     socketserver
    StringIO         io
    Tkinter          tkinter
    UserDict         collections
    __builtin__      builtins
    anydbm           dbm
    cPickle          pickle
    cStringIO        io
    commands         subprocess
    cookielib        http.cookiejar
    copy_reg         copyreg
    exceptions       builtins
    future_builtins  builtins
    htmlentitydefs   html.entities
    httplib          http.client
    md5              hashlib
    robotparser      urllib.robotparser
    sets             builtins
    sha              hashlib
    thread           _thread
    tkMessageBox     tkinter.messagebox
    urllib2          urllib.request
    urlparse         urllib.parse
    xmlrpclib        xmlrpc.client
"""))

_STRING_METHODS = """
    count find index ljust lower lstrip replace rfind rindex rjust rstrip split splitfields strip
    swapcase translate upper zfill
"""
_ABSTRACT = """
    AsyncIterable AsyncIterator Awaitable ByteString Callable Container Coroutine Generator Hashable
    ItemsView Iterable Iterator KeysView Mapping MappingView MutableMapping MutableSequence MutableSet
    Sequence Set Sized ValuesView
"""
# Maps each name that the standard library has lost to (version of Python that dropped the name, replacement).
GONE = {name: (version, instead) for version, name, instead in rows("""
    3.0  types.BooleanType             bool
    3.0  types.ClassType               type
    3.0  types.DictType                dict
    3.0  types.DictionaryType          dict
    3.0  types.FileType                io.IOBase
    3.0  types.FloatType               float
    3.0  types.InstanceType            object
    3.0  types.IntType                 int
    3.0  types.ListType                list
    3.0  types.LongType                int
    3.0  types.ObjectType              object
    3.0  types.StringType              str
    3.0  types.StringTypes             str
    3.0  types.TupleType               tuple
    3.0  types.TypeType                type
    3.0  types.UnicodeType             str
    3.0  urllib.quote                  urllib.parse.quote
    3.0  urllib.quote_plus             urllib.parse.quote_plus
    3.0  urllib.unquote                urllib.parse.unquote
    3.0  urllib.unquote_plus           urllib.parse.unquote_plus
    3.0  urllib.urlencode              urllib.parse.urlencode
    3.0  urllib.URLopener              urllib.request.URLopener
    3.0  urllib.FancyURLopener         urllib.request.FancyURLopener
    3.0  urllib.urlcleanup             urllib.request.urlcleanup
    3.0  urllib.urlopen                urllib.request.urlopen
    3.0  urllib.urlretrieve            urllib.request.urlretrieve
    3.0  itertools.ifilter             filter
    3.0  itertools.ifilterfalse        itertools.filterfalse
    3.0  itertools.imap                map
    3.0  itertools.izip                zip
    3.0  itertools.izip_longest        itertools.zip_longest
    3.0  operator.div                  operator.truediv
    3.0  operator.isCallable           callable
    3.0  operator.sequenceIncludes     operator.contains
    3.0  os.getcwdu                    os.getcwd
    3.0  os.popen2                     subprocess.Popen
    3.0  os.popen3                     subprocess.Popen
    3.0  random.jumpahead              random.seed
    3.0  string.atof                   float(text)
    3.0  string.atoi                   int(text)
    3.0  string.join                   separator.join(texts)
    3.0  string.joinfields             separator.join(texts)
    3.0  string.letters                string.ascii_letters
    3.0  string.lowercase              string.ascii_lowercase
    3.0  string.maketrans              str.maketrans
    3.0  string.uppercase              string.ascii_uppercase
    3.0  sys.exc_clear                 nothing: the line can go
    3.0  sys.exc_type                  sys.exc_info()[0]
    3.0  sys.exc_value                 sys.exc_info()[1]
    3.0  sys.maxint                    sys.maxsize
    3.0  sys.setdefaultencoding        nothing: the line can go, text is Unicode
    3.0  thread.start_new_thread       _thread.start_new_thread
    3.0  threading._sleep              threading.Thread
    3.7  os.errno                      errno
    3.8  cgi.escape                    html.escape
    3.8  platform.dist                 platform.freedesktop_os_release
    3.8  platform.linux_distribution   platform.freedesktop_os_release
    3.8  time.clock                    time.perf_counter
    3.9  array.ArrayType.tostring      tobytes
    3.9  base64.decodestring           base64.decodebytes
    3.9  base64.encodestring           base64.encodebytes
    3.9  fractions.gcd                 math.gcd
    3.9  sys.setcheckinterval          sys.setswitchinterval
    3.9  xml.etree.cElementTree        xml.etree.ElementTree
    3.11 asyncio.coroutine             async def
    3.11 inspect.formatargspec         inspect.signature
    3.11 inspect.getargspec            inspect.getfullargspec
    3.12 asynchat                      asyncio
    3.12 asyncore                      asyncio
    3.12 configparser.SafeConfigParser configparser.ConfigParser
    3.12 distutils                     setuptools, or packaging.version for versions
    3.12 imp                           importlib
    3.12 locale.format                 locale.format_string
    3.12 smtpd                         the package aiosmtpd
    3.12 ssl.wrap_socket               ssl.SSLContext().wrap_socket
    3.13 audioop                       the package audioop-lts
    3.13 cgi                           urllib.parse and html
    3.13 crypt                         hashlib
    3.13 imghdr                        PIL.Image.open
    3.13 lib2to3                       ast
    3.13 pipes                         subprocess, or shlex
    3.13 pipes.quote                   shlex.quote
    3.13 telnetlib                     the package telnetlib3
    3.13 unittest.makeSuite            unittest.defaultTestLoader.loadTestsFromTestCase
    3.13 uu                            base64
""", 3)}
GONE.update({f"string.{name}": ("3.0", f"text.{name}(…)") for name in _STRING_METHODS.split()})
GONE.update({f"collections.{name}": ("3.10", f"collections.abc.{name}") for name in _ABSTRACT.split()})

# Methods that Python or NumPy removed from their classes. The dict is {name of the method: (kind of the
# finding, the call that replaces the method)}. All these methods are called without arguments.
METHODS = {f"{prefix}{view}": (PYTHON2, f"{view}()")
           for prefix in ("iter", "view") for view in ("items", "keys", "values")}
METHODS.update(isAlive=(PYTHON3, "is_alive()"), tostring=(NUMPY, "tobytes()"))

# Packages whose classes have methods with some of the names in METHODS. If a file imports one of these
# packages, the checker does not report these methods in the file.
WITH_OLD_METHODS = {"pygtrie", "marisa_trie", "datrie"}

# --- Other packages --------------------------------------------------------------------------------------

# {name: replacement}. Some versions of NumPy lack these names. The checker looks up whether the installed
# version has the name.
NUMPY_NAMES = dict(rows("""
    Inf              np.inf
    Infinity         np.inf
    NAN              np.nan
    NINF             -np.inf
    NaN              np.nan
    PINF             np.inf
    alltrue          np.all
    asfarray         np.asarray(x, dtype=float)
    asscalar         x.item()
    bool             bool
    bool8            np.bool_
    cfloat           np.complex128
    complex          complex
    complex_         np.complex128
    cumproduct       np.cumprod
    find_common_type np.result_type
    float            float
    float_           np.float64
    in1d             np.isin
    infty            np.inf
    int              int
    int0             np.intp
    long             int
    mat              np.asmatrix
    math             math
    msort            np.sort(x, axis=0)
    object           object
    object0          object
    product          np.prod
    rank             np.ndim
    round_           np.round
    row_stack        np.vstack
    sometrue         np.any
    str              str
    string_          np.bytes_
    trapz            np.trapezoid
    typeDict         np.sctypeDict
    unicode          str
    unicode_         np.str_
"""))

# Maps each name that a package such as pandas or SciPy has moved or removed to the replacement of this name.
MOVED = dict(rows("""
    gensim.summarization          gensim 3 (`pip install 'gensim<4'`)
    keras.engine                  tensorflow.keras.layers
    keras.layers.merge            tensorflow.keras.layers
    keras.utils.np_utils          tensorflow.keras.utils
    keras.layers.normalization.BatchNormalization tensorflow.keras.layers.BatchNormalization
    pandas.Panel                  a dict of DataFrames
    pandas.datetime               datetime.datetime
    pandas.np                     numpy
    pandas.io.json.json_normalize pandas.json_normalize
    pandas.scatter_matrix         pandas.plotting.scatter_matrix
    scipy.misc.comb               scipy.special.comb
    scipy.misc.factorial          scipy.special.factorial
    scipy.misc.imread             imageio.imread
    scipy.misc.imresize           PIL.Image.resize
    scipy.misc.imsave             imageio.imwrite
    scipy.misc.logsumexp          scipy.special.logsumexp
    scipy.misc.toimage            PIL.Image.fromarray
    sklearn.cross_validation      sklearn.model_selection
    sklearn.datasets.load_boston  sklearn.datasets.fetch_california_housing
    sklearn.externals.joblib      joblib
    sklearn.externals.six         six
    sklearn.grid_search           sklearn.model_selection
    sklearn.learning_curve        sklearn.model_selection
    sklearn.preprocessing.Imputer sklearn.impute.SimpleImputer
    sklearn.utils.linear_assignment_ scipy.optimize.linear_sum_assignment
"""))

# Each of these modules is in a package with the same name. If a module is not in `PACKAGES`, the checker does
# not suggest the package with the name of the module, because a stranger may have uploaded this package to
# PyPI.
_OF_THEIR_NAME = """
    apache_beam boto3 flask flask_compress flask_cors gensim h5py jieba joblib keras keras_bert keras_contrib
    lxml matplotlib nltk oauth2client pandas psutil pytorch_pretrained_bert regex requests rouge_score scipy
    seaborn sentencepiece six spacy tabulate tensor2tensor tensorboard tensorflow_addons tensorflow_datasets
    tensorflow_hub tensorflow_probability tensorflow_text tf_slim torch tqdm transformers ujson xgboost
"""
# {module: the package to install}
PACKAGES = {name: name.replace("_", "-") for name in _OF_THEIR_NAME.split()}
PACKAGES.update(rows("""
    Bio                  biopython
    Crypto               pycryptodome
    Levenshtein          python-Levenshtein
    MySQLdb              mysqlclient
    OpenSSL              pyOpenSSL
    PIL                  Pillow
    attr                 attrs
    bert                 bert-tensorflow==1.0.1
    bert_serving         bert-serving-client
    bs4                  beautifulsoup4
    cv2                  opencv-python
    dateutil             python-dateutil
    docx                 python-docx
    dotenv               python-dotenv
    fitz                 PyMuPDF
    google.cloud.storage google-cloud-storage
    googleapiclient      google-api-python-client
    official             tf-models-official
    opencc               OpenCC
    skimage              scikit-image
    sklearn              scikit-learn
    tensorflow_serving   tensorflow-serving-api
    usb                  pyusb
    win32api             pywin32
    yaml                 PyYAML
    zmq                  pyzmq
"""))
