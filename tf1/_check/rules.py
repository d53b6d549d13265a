"""Contains the tables of `python -m tf1 --check`: names that no longer exist, and the replacement for each
name."""

import dataclasses
import re

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
BUILTINS = {
    "apply": "function(*arguments)", "basestring": "str", "buffer": "memoryview",
    "cmp": "(a > b) - (a < b), or key= of sort", "coerce": "int() or float()",
    "execfile": "exec(open(path).read())", "file": "open", "intern": "sys.intern", "long": "int",
    "raw_input": "input", "reduce": "functools.reduce", "reload": "importlib.reload",
    "StandardError": "Exception", "unichr": "chr", "unicode": "str", "xrange": "range",
}

# Maps each module of Python 2 to the module of Python 3 that replaces it.
MODULES = {
    "BaseHTTPServer": "http.server", "ConfigParser": "configparser", "Cookie": "http.cookies",
    "HTMLParser": "html.parser", "Queue": "queue", "SimpleHTTPServer": "http.server",
    "SocketServer": "socketserver", "StringIO": "io", "Tkinter": "tkinter", "UserDict": "collections",
    "__builtin__": "builtins", "anydbm": "dbm", "cPickle": "pickle", "cStringIO": "io",
    "commands": "subprocess", "cookielib": "http.cookiejar", "copy_reg": "copyreg", "exceptions": "builtins",
    "future_builtins": "builtins", "htmlentitydefs": "html.entities", "httplib": "http.client",
    "md5": "hashlib", "robotparser": "urllib.robotparser", "sets": "builtins", "sha": "hashlib",
    "thread": "_thread", "tkMessageBox": "tkinter.messagebox", "urllib2": "urllib.request",
    "urlparse": "urllib.parse", "xmlrpclib": "xmlrpc.client",
}

_STRING_METHODS = (
    "count", "find", "index", "ljust", "lower", "lstrip", "replace", "rfind", "rindex", "rjust", "rstrip",
    "split", "splitfields", "strip", "swapcase", "translate", "upper", "zfill")
_URL_PARSE = ("quote", "quote_plus", "unquote", "unquote_plus", "urlencode")
_URL_REQUEST = ("URLopener", "FancyURLopener", "urlcleanup", "urlopen", "urlretrieve")
_ABSTRACT = (
    "AsyncIterable", "AsyncIterator", "Awaitable", "ByteString", "Callable", "Container", "Coroutine",
    "Generator", "Hashable", "ItemsView", "Iterable", "Iterator", "KeysView", "Mapping", "MappingView",
    "MutableMapping", "MutableSequence", "MutableSet", "Sequence", "Set", "Sized", "ValuesView")
_TYPES = {
    "BooleanType": "bool", "ClassType": "type", "DictType": "dict", "DictionaryType": "dict",
    "FileType": "io.IOBase", "FloatType": "float", "InstanceType": "object", "IntType": "int",
    "ListType": "list", "LongType": "int", "ObjectType": "object", "StringType": "str", "StringTypes": "str",
    "TupleType": "tuple", "TypeType": "type", "UnicodeType": "str",
}

# {version of Python: {name: replacement}}. The names were removed from the standard library in this version.
_DROPPED = {
    "3.0": {
        **{f"string.{name}": f"text.{name}(…)" for name in _STRING_METHODS},
        **{f"types.{name}": instead for name, instead in _TYPES.items()},
        **{f"urllib.{name}": f"urllib.parse.{name}" for name in _URL_PARSE},
        **{f"urllib.{name}": f"urllib.request.{name}" for name in _URL_REQUEST},
        "itertools.ifilter": "filter", "itertools.ifilterfalse": "itertools.filterfalse",
        "itertools.imap": "map", "itertools.izip": "zip", "itertools.izip_longest": "itertools.zip_longest",
        "operator.div": "operator.truediv", "operator.isCallable": "callable",
        "operator.sequenceIncludes": "operator.contains", "os.getcwdu": "os.getcwd",
        "os.popen2": "subprocess.Popen", "os.popen3": "subprocess.Popen", "random.jumpahead": "random.seed",
        "string.atof": "float(text)", "string.atoi": "int(text)", "string.join": "separator.join(texts)",
        "string.joinfields": "separator.join(texts)", "string.letters": "string.ascii_letters",
        "string.lowercase": "string.ascii_lowercase", "string.maketrans": "str.maketrans",
        "string.uppercase": "string.ascii_uppercase", "sys.exc_clear": "nothing: the line can go",
        "sys.exc_type": "sys.exc_info()[0]", "sys.exc_value": "sys.exc_info()[1]",
        "sys.maxint": "sys.maxsize", "sys.setdefaultencoding": "nothing: the line can go, text is Unicode",
        "thread.start_new_thread": "_thread.start_new_thread", "threading._sleep": "threading.Thread",
    },
    "3.7": {"os.errno": "errno"},
    "3.8": {
        "cgi.escape": "html.escape", "platform.dist": "platform.freedesktop_os_release",
        "platform.linux_distribution": "platform.freedesktop_os_release", "time.clock": "time.perf_counter",
    },
    "3.9": {
        "array.ArrayType.tostring": "tobytes", "base64.decodestring": "base64.decodebytes",
        "base64.encodestring": "base64.encodebytes", "fractions.gcd": "math.gcd",
        "sys.setcheckinterval": "sys.setswitchinterval", "xml.etree.cElementTree": "xml.etree.ElementTree",
    },
    "3.10": {f"collections.{name}": f"collections.abc.{name}" for name in _ABSTRACT},
    "3.11": {
        "asyncio.coroutine": "async def", "inspect.formatargspec": "inspect.signature",
        "inspect.getargspec": "inspect.getfullargspec",
    },
    "3.12": {
        "asynchat": "asyncio", "asyncore": "asyncio",
        "configparser.SafeConfigParser": "configparser.ConfigParser",
        "distutils": "setuptools, or packaging.version for versions", "imp": "importlib",
        "locale.format": "locale.format_string", "smtpd": "the package aiosmtpd",
        "ssl.wrap_socket": "ssl.SSLContext().wrap_socket",
    },
    "3.13": {
        "audioop": "the package audioop-lts", "cgi": "urllib.parse and html", "crypt": "hashlib",
        "imghdr": "PIL.Image.open", "lib2to3": "ast", "pipes": "subprocess, or shlex",
        "pipes.quote": "shlex.quote", "telnetlib": "the package telnetlib3",
        "unittest.makeSuite": "unittest.defaultTestLoader.loadTestsFromTestCase", "uu": "base64",
    },
}
# Maps a dropped name of the standard library to (version of Python that dropped the name, replacement).
GONE = {name: (version, instead) for version, names in _DROPPED.items() for name, instead in names.items()}

# Methods that Python or NumPy removed from their classes. The dict is {name of the method: (kind of the
# finding, the call that replaces the method)}. All these methods are called without arguments.
METHODS = {
    "iteritems": (PYTHON2, "items()"), "iterkeys": (PYTHON2, "keys()"), "itervalues": (PYTHON2, "values()"),
    "viewitems": (PYTHON2, "items()"), "viewkeys": (PYTHON2, "keys()"), "viewvalues": (PYTHON2, "values()"),
    "isAlive": (PYTHON3, "is_alive()"), "tostring": (NUMPY, "tobytes()"),
}

# Packages whose classes have methods with some of the names in METHODS. If a file imports one of these
# packages, the checker does not report these methods in the file.
WITH_OLD_METHODS = ("pygtrie", "marisa_trie", "datrie")

# --- Other packages --------------------------------------------------------------------------------------

# {name: replacement}. Some versions of NumPy lack these names. The checker looks up whether the installed
# version has the name.
NUMPY_NAMES = {
    "Inf": "np.inf", "Infinity": "np.inf", "NAN": "np.nan", "NINF": "-np.inf", "NaN": "np.nan",
    "PINF": "np.inf", "alltrue": "np.all", "asfarray": "np.asarray(x, dtype=float)", "asscalar": "x.item()",
    "bool": "bool", "bool8": "np.bool_", "cfloat": "np.complex128", "complex": "complex",
    "complex_": "np.complex128", "cumproduct": "np.cumprod", "find_common_type": "np.result_type",
    "float": "float", "float_": "np.float64", "in1d": "np.isin", "infty": "np.inf", "int": "int",
    "int0": "np.intp", "long": "int", "mat": "np.asmatrix", "math": "math", "msort": "np.sort(x, axis=0)",
    "object": "object", "object0": "object", "product": "np.prod", "rank": "np.ndim", "round_": "np.round",
    "row_stack": "np.vstack", "sometrue": "np.any", "str": "str", "string_": "np.bytes_",
    "trapz": "np.trapezoid", "typeDict": "np.sctypeDict", "unicode": "str", "unicode_": "np.str_",
}

# Maps each name that a package such as pandas or SciPy has moved or removed to the replacement of this name.
MOVED = {
    "gensim.summarization": "gensim 3 (`pip install 'gensim<4'`)", "keras.engine": "tensorflow.keras.layers",
    "keras.layers.merge": "tensorflow.keras.layers", "keras.utils.np_utils": "tensorflow.keras.utils",
    "keras.layers.normalization.BatchNormalization": "tensorflow.keras.layers.BatchNormalization",
    "pandas.Panel": "a dict of DataFrames", "pandas.datetime": "datetime.datetime", "pandas.np": "numpy",
    "pandas.io.json.json_normalize": "pandas.json_normalize",
    "pandas.scatter_matrix": "pandas.plotting.scatter_matrix", "scipy.misc.comb": "scipy.special.comb",
    "scipy.misc.factorial": "scipy.special.factorial", "scipy.misc.imread": "imageio.imread",
    "scipy.misc.imresize": "PIL.Image.resize", "scipy.misc.imsave": "imageio.imwrite",
    "scipy.misc.logsumexp": "scipy.special.logsumexp", "scipy.misc.toimage": "PIL.Image.fromarray",
    "sklearn.cross_validation": "sklearn.model_selection",
    "sklearn.datasets.load_boston": "sklearn.datasets.fetch_california_housing",
    "sklearn.externals.joblib": "joblib", "sklearn.externals.six": "six",
    "sklearn.grid_search": "sklearn.model_selection", "sklearn.learning_curve": "sklearn.model_selection",
    "sklearn.preprocessing.Imputer": "sklearn.impute.SimpleImputer",
    "sklearn.utils.linear_assignment_": "scipy.optimize.linear_sum_assignment",
}

# Each of these modules is in a package with the same name. If a module is not in `PACKAGES`, the checker does
# not suggest the package with the name of the module, because a stranger may have uploaded this package to
# PyPI.
_OF_THEIR_NAME = (
    "apache_beam", "flask_compress", "flask_cors", "gensim", "h5py", "jieba", "joblib", "keras", "keras_bert",
    "keras_contrib", "matplotlib", "nltk", "oauth2client", "pandas", "pytorch_pretrained_bert", "requests",
    "rouge_score", "scipy", "sentencepiece", "six", "spacy", "tensor2tensor", "tensorboard",
    "tensorflow_addons", "tensorflow_datasets", "tensorflow_hub", "tensorflow_probability", "tensorflow_text",
    "tf_slim", "torch", "tqdm", "transformers")
# {module: the package to install}
PACKAGES = {
    **{name: name.replace("_", "-") for name in _OF_THEIR_NAME},
    "Bio": "biopython", "Crypto": "pycryptodome", "Levenshtein": "python-Levenshtein",
    "MySQLdb": "mysqlclient", "OpenSSL": "pyOpenSSL", "PIL": "Pillow", "attr": "attrs",
    "bert": "bert-tensorflow==1.0.1", "bert_serving": "bert-serving-client", "bs4": "beautifulsoup4",
    "cv2": "opencv-python", "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv",
    "fitz": "PyMuPDF", "google.cloud.storage": "google-cloud-storage",
    "googleapiclient": "google-api-python-client",
    "official": "tf-models-official", "opencc": "OpenCC", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "tensorflow_serving": "tensorflow-serving-api", "usb": "pyusb",
    "win32api": "pywin32", "yaml": "PyYAML", "zmq": "pyzmq",
}
