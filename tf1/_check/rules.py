"""What `python -m tf1 --check` knows by heart: names that are gone, and what to write instead."""

import dataclasses
import re

PYTHON2, PYTHON3, SYNTAX = "Python 2", "Python 3", "syntax"
NUMPY, TENSORFLOW, PACKAGE = "NumPy", "TensorFlow", "package"


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """A line that will not run, or, as a note, one that may do otherwise than it did."""

    line: int
    kind: str
    what: str
    instead: str
    note: bool = False

    def __str__(self):
        instead = f"; write {self.instead}" if self.instead else ""
        return f"{self.line}: {'note: ' if self.note else ''}{self.what}{instead}"


def code(instead):
    """What to write, as code unless it is a sentence."""
    return instead if re.search(r"[a-z]: |`|\bthe package\b| or | in place ", instead) else f"`{instead}`"


def shortened(code, most=70):
    """Code on one line of a message."""
    code = re.sub(r"\s*\\?\s*\n\s*", " ", code)
    return code if len(code) <= most else f"{code[:most - 1]}…"


# --- Python ----------------------------------------------------------------------------------------------

# Python 2's builtins: what to write.
BUILTINS = {
    "apply": "function(*arguments)", "basestring": "str", "buffer": "memoryview",
    "cmp": "(a > b) - (a < b), or key= of sort", "coerce": "int() or float()",
    "execfile": "exec(open(path).read())", "file": "open", "intern": "sys.intern", "long": "int",
    "raw_input": "input", "reduce": "functools.reduce", "reload": "importlib.reload",
    "StandardError": "Exception", "unichr": "chr", "unicode": "str", "xrange": "range",
}

# Python 2's modules: what they are now.
MODULES = {
    "BaseHTTPServer": "http.server", "ConfigParser": "configparser", "Cookie": "http.cookies",
    "HTMLParser": "html.parser", "Queue": "queue", "SimpleHTTPServer": "http.server",
    "SocketServer": "socketserver", "StringIO": "io", "Tkinter": "tkinter", "UserDict": "collections",
    "__builtin__": "builtins", "anydbm": "dbm", "cPickle": "pickle", "cStringIO": "io",
    "commands": "subprocess",
    "cookielib": "http.cookiejar", "copy_reg": "copyreg", "exceptions": "builtins",
    "future_builtins": "builtins",
    "htmlentitydefs": "html.entities", "httplib": "http.client", "md5": "hashlib", "robotparser":
    "urllib.robotparser", "sets": "builtins", "sha": "hashlib", "thread": "_thread", "tkMessageBox":
    "tkinter.messagebox", "urllib2": "urllib.request", "urlparse": "urllib.parse",
    "xmlrpclib": "xmlrpc.client",
}

_STRING_METHODS = ("atof", "atoi", "capitalize", "count", "find", "index", "join", "ljust", "lower", "lstrip",
                   "replace", "rfind", "rindex", "rjust", "rstrip", "split", "splitfields", "strip",
                   "swapcase",
                   "translate", "upper", "zfill")
_URL_PARSE = ("quote", "quote_plus", "unquote", "unquote_plus", "urlencode")
_URL_REQUEST = ("URLopener", "FancyURLopener", "urlcleanup", "urlopen", "urlretrieve")
_ABSTRACT = ("AsyncIterable", "AsyncIterator", "Awaitable", "ByteString", "Callable", "Container",
"Coroutine",
             "Generator", "Hashable", "ItemsView", "Iterable", "Iterator", "KeysView", "Mapping",
             "MappingView",
             "MutableMapping", "MutableSequence", "MutableSet", "Sequence", "Set", "Sized", "ValuesView")
_TYPES = {"BooleanType": "bool", "ClassType": "type", "DictType": "dict", "DictionaryType": "dict",
"FileType":
          "io.IOBase", "FloatType": "float", "InstanceType": "object", "IntType": "int", "ListType": "list",
          "LongType": "int", "ObjectType": "object", "StringType": "str", "StringTypes": "str",
          "TupleType": "tuple", "TypeType": "type", "UnicodeType": "str"}

# Name in Python's library: (the version that dropped it, what to write).
GONE = {
    **{f"collections.{name}": ("3.10", f"collections.abc.{name}") for name in _ABSTRACT},
    **{f"string.{name}": ("3.0", "int(text)" if name == "atoi" else "float(text)" if name == "atof" else
                          "separator.join(texts)" if name in ("join", "joinfields") else f"text.{name}(…)")
       for name in _STRING_METHODS if name != "capitalize"},
    **{f"types.{name}": ("3.0", instead) for name, instead in _TYPES.items()},
    **{f"urllib.{name}": ("3.0", f"urllib.parse.{name}") for name in _URL_PARSE},
    **{f"urllib.{name}": ("3.0", f"urllib.request.{name}") for name in _URL_REQUEST},
    **{f"itertools.{old}": ("3.0", new) for old, new in dict(
        ifilter="filter", ifilterfalse="itertools.filterfalse", imap="map", izip="zip",
        izip_longest="itertools.zip_longest").items()},
    **{f"threading.{name}": ("3.0", "threading.Thread") for name in ("_sleep",)},
    "array.ArrayType.tostring": ("3.9", "tobytes"),
    "asyncio.coroutine": ("3.11", "async def"),
    "base64.decodestring": ("3.9", "base64.decodebytes"), "base64.encodestring": ("3.9",
    "base64.encodebytes"),
    "cgi.escape": ("3.8", "html.escape"),
    "configparser.SafeConfigParser": ("3.12", "configparser.ConfigParser"),
    "fractions.gcd": ("3.9", "math.gcd"),
    "inspect.formatargspec": ("3.11", "inspect.signature"), "inspect.getargspec": ("3.11",
    "inspect.getfullargspec"),
    "itertools.joinfields": ("3.0", "str.join"),
    "locale.format": ("3.12", "locale.format_string"),
    "operator.div": ("3.0", "operator.truediv"), "operator.isCallable": ("3.0", "callable"),
    "operator.sequenceIncludes": ("3.0", "operator.contains"),
    "os.errno": ("3.7", "errno"), "os.getcwdu": ("3.0", "os.getcwd"), "os.popen2": ("3.0",
    "subprocess.Popen"),
    "os.popen3": ("3.0", "subprocess.Popen"),
    "pipes.quote": ("3.13", "shlex.quote"),
    "platform.dist": ("3.8", "platform.freedesktop_os_release"),
    "platform.linux_distribution": ("3.8", "platform.freedesktop_os_release"),
    "random.jumpahead": ("3.0", "random.seed"), "ssl.wrap_socket": ("3.12", "ssl.SSLContext().wrap_socket"),
    "string.letters": ("3.0", "string.ascii_letters"), "string.lowercase": ("3.0", "string.ascii_lowercase"),
    "string.maketrans": ("3.0", "str.maketrans"), "string.uppercase": ("3.0", "string.ascii_uppercase"),
    "sys.exc_clear": ("3.0", "nothing: the line can go"), "sys.exc_type": ("3.0", "sys.exc_info()[0]"),
    "sys.exc_value": ("3.0", "sys.exc_info()[1]"), "sys.maxint": ("3.0", "sys.maxsize"),
    "sys.setcheckinterval": ("3.9", "sys.setswitchinterval"),
    "sys.setdefaultencoding": ("3.0", "nothing: the line can go, text is Unicode"),
    "thread.start_new_thread": ("3.0", "_thread.start_new_thread"),
    "time.clock": ("3.8", "time.perf_counter"),
    "unittest.makeSuite": ("3.13", "unittest.defaultTestLoader.loadTestsFromTestCase"),
    "xml.etree.cElementTree": ("3.9", "xml.etree.ElementTree"),
    # Modules.
    "asynchat": ("3.12", "asyncio"), "asyncore": ("3.12", "asyncio"), "audioop": ("3.13",
    "the package audioop-lts"),
    "cgi": ("3.13", "urllib.parse and html"), "crypt": ("3.13", "hashlib"),
    "distutils": ("3.12", "setuptools, or packaging.version for versions"), "imghdr": ("3.13",
    "PIL.Image.open"),
    "imp": ("3.12", "importlib"), "lib2to3": ("3.13", "ast"), "pipes": ("3.13", "subprocess, or shlex"),
    "smtpd": ("3.12", "the package aiosmtpd"), "telnetlib": ("3.13", "the package telnetlib3"),
    "uu": ("3.13", "base64"),
}

# Methods without arguments that nothing has any more: (kind, what to write after the object).
METHODS = {
    "iteritems": (PYTHON2, "items()"), "iterkeys": (PYTHON2, "keys()"), "itervalues": (PYTHON2, "values()"),
    "viewitems": (PYTHON2, "items()"), "viewkeys": (PYTHON2, "keys()"), "viewvalues": (PYTHON2, "values()"),
    "isAlive": (PYTHON3, "is_alive()"), "tostring": (NUMPY, "tobytes()"),
}

# Packages whose own tables have such methods.
WITH_OLD_METHODS = ("pygtrie", "marisa_trie", "datrie")

# --- Other packages --------------------------------------------------------------------------------------

# NumPy's names; whether one is gone is asked of the NumPy that is installed.
NUMPY_NAMES = {
    "Inf": "np.inf", "Infinity": "np.inf", "NAN": "np.nan", "NINF": "-np.inf", "NaN": "np.nan",
    "PINF": "np.inf",
    "alltrue": "np.all", "asfarray": "np.asarray(x, dtype=float)", "asscalar": "x.item()", "bool": "bool",
    "bool8": "np.bool_", "cfloat": "np.complex128", "complex": "complex", "complex_": "np.complex128",
    "cumproduct": "np.cumprod", "find_common_type": "np.result_type", "float": "float",
    "float_": "np.float64",
    "in1d": "np.isin", "infty": "np.inf", "int": "int", "int0": "np.intp", "long": "int",
    "mat": "np.asmatrix",
    "math": "math", "msort": "np.sort(x, axis=0)", "object": "object", "object0": "object",
    "product": "np.prod",
    "rank": "np.ndim", "round_": "np.round", "row_stack": "np.vstack", "sometrue": "np.any", "str": "str",
    "string_": "np.bytes_", "trapz": "np.trapezoid", "typeDict": "np.sctypeDict", "unicode": "str",
    "unicode_": "np.str_",
}

# Names of TensorFlow 0.x and of its models, that no later version has.
TENSORFLOW_NAMES = {
    "tf.batch_matmul": "tf.matmul", "tf.inv": "tf.reciprocal",
    "tf.merge_all_summaries": "tf.summary.merge_all",
    "tf.mul": "tf.multiply", "tf.neg": "tf.negative", "tf.pack": "tf.stack", "tf.scalar_summary":
    "tf.summary.scalar", "tf.select": "tf.where", "tf.sub": "tf.subtract", "tf.train.SummaryWriter":
    "tf.summary.FileWriter", "tf.unpack": "tf.unstack", "tf.initialize_all_variables":
    "tf.global_variables_initializer",
}

# Names of other packages that moved: what to write.
MOVED = {
    "gensim.summarization": "gensim 3 (`pip install 'gensim<4'`)",
    "keras.engine": "tensorflow.keras.layers", "keras.layers.merge": "tensorflow.keras.layers",
    "keras.utils.np_utils": "tensorflow.keras.utils", "keras.layers.normalization.BatchNormalization":
    "tensorflow.keras.layers.BatchNormalization",
    "pandas.Panel": "a dict of DataFrames", "pandas.datetime": "datetime.datetime", "pandas.np": "numpy",
    "pandas.io.json.json_normalize": "pandas.json_normalize", "pandas.scatter_matrix":
    "pandas.plotting.scatter_matrix",
    "scipy.misc.comb": "scipy.special.comb", "scipy.misc.factorial": "scipy.special.factorial",
    "scipy.misc.imread": "imageio.imread", "scipy.misc.imresize": "PIL.Image.resize", "scipy.misc.imsave":
    "imageio.imwrite", "scipy.misc.logsumexp": "scipy.special.logsumexp", "scipy.misc.toimage":
    "PIL.Image.fromarray",
    "sklearn.cross_validation": "sklearn.model_selection", "sklearn.datasets.load_boston":
    "sklearn.datasets.fetch_california_housing", "sklearn.externals.joblib": "joblib",
    "sklearn.externals.six": "six", "sklearn.grid_search": "sklearn.model_selection",
    "sklearn.learning_curve":
    "sklearn.model_selection", "sklearn.preprocessing.Imputer": "sklearn.impute.SimpleImputer",
    "sklearn.utils.linear_assignment_": "scipy.optimize.linear_sum_assignment",
}

# Module: the package that has it. Of others none is named: anybody may have taken such a name.
PACKAGES = {
    **{name: name for name in ("gensim", "h5py", "jieba", "joblib", "keras", "matplotlib", "nltk",
                               "pandas", "requests", "scipy", "six", "sentencepiece", "spacy", "tensorboard",
                               "torch", "tqdm", "transformers")},
    "Bio": "biopython", "Crypto": "pycryptodome", "Levenshtein": "python-Levenshtein",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyOpenSSL", "PIL": "Pillow", "apache_beam": "apache-beam", "attr": "attrs", "bert":
    "bert-tensorflow==1.0.1", "bert_serving": "bert-serving-client", "bs4": "beautifulsoup4", "cv2":
    "opencv-python", "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv",
    "flask_cors": "flask-cors", "flask_compress": "flask-compress", "fitz": "PyMuPDF", "google.cloud":
    "google-cloud-storage", "googleapiclient": "google-api-python-client", "keras_bert": "keras-bert",
    "keras_contrib": "keras-contrib", "oauth2client": "oauth2client", "official": "tf-models-official",
    "opencc": "OpenCC", "pytorch_pretrained_bert": "pytorch-pretrained-bert", "rouge_score": "rouge-score",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "tensor2tensor": "tensor2tensor",
    "tensorflow_addons":
    "tensorflow-addons", "tensorflow_datasets": "tensorflow-datasets", "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability", "tensorflow_text": "tensorflow-text",
    "tensorflow_serving": "tensorflow-serving-api", "tf_slim": "tf-slim", "usb": "pyusb",
    "win32api": "pywin32",
    "yaml": "PyYAML", "zmq": "pyzmq",
}
