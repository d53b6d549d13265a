"""The names in README.md and in docs/ exist: files, links, names in code, commands and their flags."""

import functools
import itertools
import pkgutil
import re
import shlex
import sys

import pytest
import test_architecture

ROOT = test_architecture.ROOT
sys.path.insert(0, str(ROOT / "docs"))

from bertlib.commands import common_flags, published_files  # noqa: E402

import render_flags  # noqa: E402  after the path

from bertlib.estimator import step_config  # noqa: E402
from bertlib.tasks.classification import classification_target, classifier_data  # noqa: E402

README = ROOT / "README.md"
INDEX = ROOT / "docs" / "index.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", OF_TF1 := ROOT / "tf1" / "README.md",
         *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = {f"{name}.py" for name in test_architecture.PUBLISHED_COMMANDS | test_architecture.OUR_COMMANDS}

# Files that a reader writes, and those that the page of tf1 names without their folder.
YOUR_OWN = {"run_my_task.py", "my_task.py", "task_module.py", "keras_mrpc.py", "examples.py",
            "keyed_random.py", "_contrib/PART.py"}
# Flags of other programs.
FOREIGN_FLAGS = {"no-deps", "pad_id", "unk_id", "bos_id", "eos_id", "control_symbols",
                 "cap-add", "security-opt", "network", "syn", "dport"}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@functools.cache
def text_of(page):
    return page.read_text(encoding="utf-8")


def code_lines(text):
    """Returns the lines of indented and bash blocks. Lines that end with a backslash include the next line.
    """
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    lines += "".join(re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)).splitlines()
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


def prose_of(text):
    """The text without its blocks of code."""
    text = re.sub(r"^```\w+\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


def code_spans(text):
    """The texts between backticks."""
    prose = prose_of(text)
    return re.findall(r"`([^`]+)`", prose)


# --- Links, paths, names ---------------------------------------------------------------------------------


def anchors(page):
    """Returns the anchors of a page: its headings in the form that GitHub uses in links."""
    prose = prose_of(text_of(page)).splitlines()
    headings = [line.lstrip("#").strip().lower() for line in prose if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def links(page):
    found = re.findall(r"\]\(([^)\s]+)\)", prose_of(text_of(page)))
    return [link for link in found if not re.match(r"\w+:", link)]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or anchor and anchor not in anchors(target):
            broken.append(link)
    assert not broken


def test_the_index_links_to_each_page():
    linked = {(INDEX.parent / link.partition("#")[0]).resolve() for link in links(INDEX)}
    assert linked >= set(PAGES) - {README, INDEX}
    assert "docs/index.md" in links(README)


def test_the_site_shows_the_notebook_and_breaks_no_flag():
    sys.path.append(str(ROOT / "docs"))
    import site_hooks
    notebook = site_hooks.notebook_page()
    assert "```python\nfrom bertlib import api\n" in notebook and notebook.count("data:image/png") == 1
    html = '<a href="--x">set --seed=1</a><code>--seed=2</code><pre><code>--seed=3</code></pre>'
    whole = re.sub("--seed=[12]", r'<span class="word">\g<0></span>', html)
    assert site_hooks.on_post_page(html, None, None) == whole


@each_page
def test_paths_exist(page):
    folders = "bertlib|tf1|tests|benchmarks|samples|recipes(?!/TASK)|docs"
    paths = re.findall(rf"(?<![\w/$.])(?:{folders})/[\w./*-]*", text_of(page))
    assert not [path for path in paths if not any(ROOT.glob(path.rstrip("./")))]


@each_page
def test_dotted_names_are_defined(page):
    roots = "|".join(["bertlib", *sorted(test_architecture.MODEL)])
    names = re.findall(rf"(?<![\w/.])(?:{roots})(?:\.(?!py\b)\w+)+", text_of(page))
    for name in names:
        pkgutil.resolve_name(name)  # raises an error that contains the name


def test_short_names_of_the_paths_are_defined():
    """Checks names of the form `module.name`, without the package."""
    text = re.sub(r"`\w+\.(txt|tsv|jsonl)`", "", text_of(ROOT / "docs" / "development" / "paths.md"))
    names_of_modules, classes = test_architecture.names_of_all_modules()
    ops = {"IdentityN", "BertDropoutMask"}
    assert not list(test_architecture.stale_names(text, names_of_modules, classes | ops))


METRICS = [name for target in (classification_target.SingleLabel, classification_target.Score,
                               classification_target.MultiLabel) for name in target().metric_names]


@pytest.mark.parametrize("page, names", [
    ("memory", step_config.OPTIMIZERS), ("data", published_files.DATA),
    ("glue", [processor.name for processor in classifier_data.PROCESSORS.values()]),
    ("own_task", METRICS), ("compare", METRICS), ("classification", [f"eval_{name}" for name in METRICS])])
def test_a_page_lists_each_name(page, names):
    text = text_of(ROOT / "docs" / "howto" / f"{page}.md")
    named = re.findall(r"[\w.-]+", " ".join([*code_spans(text), *code_lines(text)]))
    missing = set(names).difference(named)
    assert not missing, f"Add {', '.join(missing)} to docs/howto/{page}.md, between backticks."


# --- Commands and flags ----------------------------------------------------------------------------------


def words_of(line):
    """The words of a line of shell."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # the line is not shell: for example, it has a single apostrophe
        return line.split()


def commands_of(page):
    """Returns [(script, [names of flags])] of all command lines, in blocks or between backticks."""
    found = []
    lines = map(words_of, [*code_lines(text_of(page)), *code_spans(text_of(page))])
    for words in itertools.chain.from_iterable(map(commands_in, lines)):
        scripts = [index for index, word in enumerate(words) if re.fullmatch(r"[\w/]+\.py", word)]
        if scripts:
            # The flags after "--" belong to another command.
            own = itertools.takewhile(lambda word: word != "--", words[scripts[0] + 1:])
            flags = [re.match(r"--([\w-]+)", word) for word in own]
            script = re.sub("^/path/to/(bert|this/repository)/", "", words[scripts[0]])
            found.append((script, [flag[1] for flag in flags if flag]))
    return found


def commands_in(words):
    """Splits a command line at the word "--". After this word, sweep.py expects another command line."""
    return [list(part) for is_end, part in itertools.groupby(words, "--".__eq__) if not is_end]


def paths_of(script):
    """Returns the existing paths of a script whose name is given with or without its folder."""
    return [path for path in (ROOT / script, ROOT / "benchmarks" / script, ROOT / "tf1" / script)
            if path.is_file()]


def flags_defined_in(path):
    """Returns the names of the flags that a program defines. For a computed name, returns all possible names.
    """
    source = text_of(path)
    found = re.findall(r'(?:DEFINE_\w+|add_argument)\(\s*"(?:--)?(\w+)"', source)
    return {*found, *(re.findall(r'"(\w+)"', source) if "add_argument(f" in source else [])}


@functools.cache
def flags_of(script):
    """Returns the names of all flags of a script: its own flags, and those that it passes on."""
    path = paths_of(script)[0]
    if path.parent == ROOT:
        entries = [*render_flags.module_of(path.stem).ENTRIES, *common_flags.COMMON]
        return {"help", "helpfull", "flagfile", *(entry.name for entry in entries)}
    own, source = flags_defined_in(path), text_of(path)
    if "results.add_flag(" in source:
        own |= flags_defined_in(ROOT / "benchmarks" / "results.py")
    # A script with `parse_known_args` passes unknown flags on to a command whose name is in its code.
    handed_to = [command for command in COMMANDS if command in source] if "parse_known_args" in source else []
    return own.union(*map(flags_of, handed_to))


@each_page
def test_commands_exist(page):
    assert not [script for script, _ in commands_of(page) if script not in YOUR_OWN and not paths_of(script)]


@each_page
def test_commands_have_the_flags_that_they_are_given(page):
    known = [(script, flags) for script, flags in commands_of(page) if paths_of(script)]
    assert not [(script, flag) for script, flags in known for flag in flags if flag not in flags_of(script)]


@each_page
def test_flags_between_backticks_are_those_of_some_command(page):
    scripts = [*COMMANDS, *(str(path.relative_to(ROOT)) for path in (ROOT / "benchmarks").rglob("*.py"))]
    known = FOREIGN_FLAGS.union(*map(flags_of, scripts),
                                flags_defined_in(ROOT / "tf1" / "__main__.py"))
    mentioned = re.findall(r"(?<![\w-])--([a-z][\w-]*)", " ".join(code_spans(text_of(page))))
    assert not set(mentioned) - known


@each_page
def test_make_and_installed_commands_exist(page):
    code = "\n".join([*code_lines(text_of(page)), *code_spans(text_of(page))])
    targets = re.findall(r"^([\w-]+):", text_of(ROOT / "Makefile"), re.MULTILINE)
    assert set(re.findall(r"^make ([\w-]+)", code, re.MULTILINE)) <= set(targets)
    installed = re.findall(r"^(bert-[\w-]+) = ", text_of(ROOT / "pyproject.toml"), re.MULTILINE)
    named = set(re.findall(r"^bert-[\w-]+", code, re.MULTILINE))
    assert named <= set(installed)
    if page.name == "install.md":
        assert named >= set(installed)


# --- The packages ----------------------------------------------------------------------------------------


def modules_in_table(page, heading):
    """Returns the modules, with their folders, in the table below a heading."""
    section = text_of(page).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found, folder = set(), None
    for first, modules in re.findall(r"^\| (.*?)\| (.*?) \|", section, re.MULTILINE)[1:]:
        folder = next(iter(code_spans(first)), folder)
        found |= {f"{folder}.{module}" for module in code_spans(modules)}
    return found


def test_the_page_of_tf1_names_each_module():
    modules = {name for package in test_architecture.TF1 for name in test_architecture.modules_of(package)}
    named = {f"tf1.{module}" for module in modules_in_table(OF_TF1, "Map of modules")}
    assert named == modules - set(test_architecture.FILES)


def test_steps_that_tf1_overrides_are_steps_of_the_core():
    table = text_of(OF_TF1).split("\n## How the Estimator extends bertlib's\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*?)\| (.*?) \|", table, re.MULTILINE)[2:]
    named = {name for _, names in rows for name in code_spans(names)}
    methods = {name for path in test_architecture.FILES["tf1._run"] if path.stem.startswith("script_")
               for name in re.findall(r"def (\w+)", text_of(path))}
    assert named and named <= methods


def test_the_proxy_on_the_page_of_the_server_has_the_limits_of_the_server():
    """The proxy accepts a body of the default size, and waits for an answer of serve.py."""
    lines = [line.strip() for line in code_lines(text_of(ROOT / "docs" / "howto" / "server.md"))]
    default = {entry.name: entry.default for entry in render_flags.module_of("serve").ENTRIES}
    assert f"client_max_body_size {default['max_body_kb'] // 1024}m;" in lines
    wait, = re.findall(r"^proxy_read_timeout (\d+)s;", "\n".join(lines), re.MULTILINE)
    assert int(wait) > default["request_timeout"]
