"""The flag files in recipes/: their comments and their flags."""

import pathlib
import re

from bertlib.commands import published_files

import absl.flags
from helpers import ROOT, write_json
import pytest
from test_docs import common_flags, render_flags

import modeling

STABLE = ROOT / "recipes" / "stable.flags"  # flags that can be added to each recipe
RECIPES = sorted(set((ROOT / "recipes").glob("*.flags")) - {STABLE})
COMMON = sorted((ROOT / "recipes" / "common").glob("*.flags"))

# {recipe whose model has no name in plan_memory.py: (layers, hidden size, size of the vocabulary)}
OWN_SIZES = {"mrpc-tiny": (2, 128, 30522), "mrpc-mini": (4, 256, 30522), "mrpc-small": (4, 512, 30522),
             "mrpc-medium": (8, 512, 30522), "xnli-chinese": (12, 768, 21128),
             "xnli-multi-cased": (12, 768, 119547)}

each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)


def command_of(recipe):
    """Returns the script in the comments of a recipe."""
    return re.search(rf"python (run_\w+\.py) --flagfile=recipes/{re.escape(recipe.name)}\n",
                     recipe.read_text(encoding="utf-8"))[1]


def read(path):
    """Returns the flags of a flag file and of the files that it includes, {name: value}.

    Later lines override earlier lines.
    """
    values = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("--"):
            name, _, value = line.removeprefix("--").partition("=")
            values.update(read(ROOT / value) if name == "flagfile" else {name: value})
    return values


# --- The files -------------------------------------------------------------------------------------------


def plans(recipe):
    """Returns the memory plans in a recipe's comments: [(text with the memory, flags of plan_memory.py)]."""
    text, = re.findall(r"^# Memory:(.*?)^(?:# [A-Z][a-z ]+:|--)", recipe.read_text(encoding="utf-8"),
                       re.DOTALL | re.MULTILINE)
    pieces = re.findall(r"(.*?): +python plan_memory\.py((?: --\S+)+)", re.sub(r"\s*\\?\n#\s*", " ", text))
    return [(before.strip(), tuple(flags.split())) for before, flags in pieces]


@each_recipe
def test_the_memory_of_a_recipe_is_planned_for_its_own_flags(recipe):
    own = read(recipe)
    checkpoint = own["init_checkpoint"]
    size = "large" if "L-24" in checkpoint else "base"
    task = command_of(recipe).removeprefix("run_").removesuffix(".py")
    wanted = {"model": size if "uncased" in checkpoint else f"{size}-cased",
              "task": task, "max_seq_length": own["max_seq_length"]}
    if recipe.stem in OWN_SIZES:
        wanted["bert_config_file"] = checkpoint.replace("bert_model.ckpt", "bert_config.json")
        del wanted["model"]
    planned = [{"task": "classifier", "gradient_accumulation_steps": "1", "recompute": "none",
                **dict(flag.removeprefix("--").split("=") for flag in flags)} for _, flags in plans(recipe)]
    for flags in planned:
        assert {**flags, **wanted} == flags
        assert (int(flags["batch_size"]) * int(flags["gradient_accumulation_steps"])
                == int(own["train_batch_size"]))
    # The first number is for the flags of the recipe. The others are for the flags that the text names.
    assert planned[0]["gradient_accumulation_steps"] == own.get("gradient_accumulation_steps", "1")
    assert planned[0]["recompute"] == "none"
    for text, flags in plans(recipe)[1:]:
        assert any(flag in text for flag in flags if re.match("--(recompute|gradient)", flag)), text
    assert all(len(re.findall(r"\d+\.\d+ GB", text)) == 1 for text, _ in plans(recipe))


def _planned_memory():
    """Returns {flags of plan_memory.py: set of the amounts of memory in all recipes for these flags}."""
    numbers = {}
    for recipe in RECIPES:
        for text, flags in plans(recipe):
            numbers.setdefault(flags, set()).update(re.findall(r"\d+\.\d+ GB", text))
    return numbers


def _mark(flags):
    if "--model=large" not in " ".join(flags) and "--max_seq_length=128" in flags:
        return pytest.mark.slow(reason="simulates a training step of BERT-Base or of a smaller model")
    return pytest.mark.soak(reason="simulates many training steps of BERT-Large")


@pytest.mark.parametrize("flags, numbers", [
    pytest.param(flags, numbers, marks=_mark(flags), id=" ".join(flags))
    for flags, numbers in _planned_memory().items()])
def test_the_command_of_a_recipe_prints_its_memory(flags, numbers, scripts, tmp_path):
    for name, (layers, width, words) in OWN_SIZES.items():
        checkpoint = tmp_path / read(ROOT / "recipes" / f"{name}.flags")["init_checkpoint"]
        checkpoint.parent.mkdir(parents=True)
        config = modeling.BertConfig(words, width, layers, width // 64, 4 * width, type_vocab_size=2)
        write_json(checkpoint.with_name("bert_config.json"), config.to_dict())
    done = scripts.run("plan_memory.py", *flags, cwd=tmp_path)
    done.assert_success()
    assert numbers == set(re.findall(r"(\d+\.\d+ GB) = 1\.07 × ", done.out))


@each_recipe
def test_the_flags_of_a_recipe_are_those_of_its_command(recipe):
    defined = absl.flags.FlagValues()
    module = render_flags.module_of(command_of(recipe).removesuffix(".py"))
    for entry in [*module.ENTRIES, *common_flags.COMMON]:
        entry.define_in(defined)
    defined([command_of(recipe), *(f"--{name}={value}" for name, value in read(recipe).items())])


def test_a_recipe_without_its_data_names_the_command_that_downloads_them(scripts, tmp_path):
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    done = scripts.run("run_squad.py", "--flagfile=recipes/squad1.1-large-12gb.flags", cwd=tmp_path)
    done.assert_refused("train-v1.1.json: there is no such file. `python download.py --data=squad1.1` downl")


@each_recipe
def test_download_creates_the_paths_of_a_recipe(recipe):
    values = read(recipe)
    models = {entry.directory for entry in published_files.MODELS.values()}
    checkpoint = pathlib.PurePath(values["init_checkpoint"])
    assert str(checkpoint.parent) in models and checkpoint.name == "bert_model.ckpt"
    is_cased = re.search(r"(?<!un)cased_", str(checkpoint)) is not None
    assert is_cased == (values.get("do_lower_case", "true") == "false")
    paths = {f"{source.directory}/{member}" for entry in published_files.DATA.values()
             for source in entry.sources for member in source.files}
    paths |= {f"{entry.directory}/{name}" for entry in published_files.DATA.values()
              for name in entry.joined_files}
    for name in ("train_file", "predict_file"):
        assert values.get(name) in {None, *paths}
    # The text of CoNLL-2003 cannot be downloaded freely.
    directory = values.get("data_dir", "data/conll2003")
    assert directory == "data/conll2003" or any(re.match(rf"{directory}/(train|xnli\.dev)\.", path)
                                                for path in paths)
    model, = re.findall(r"download\.py --model=(\S+)", recipe.read_text(encoding="utf-8"))
    assert published_files.MODELS[model].directory == str(checkpoint.parent)
    for data in re.findall(r"download\.py .*--data=(\S+)$", recipe.read_text(encoding="utf-8"), re.MULTILINE):
        assert data in published_files.DATA


def test_each_recipe_has_its_own_output_directory():
    assert all(read(recipe)["output_dir"] == f"output/{recipe.stem}" for recipe in RECIPES)
    assert all("output_dir" not in read(path) for path in COMMON)


def test_the_pages_on_12_gb_have_the_memory_of_the_recipe():
    """The pages use the recipe itself, and state the amount of memory in its comments."""
    recipe = ROOT / "recipes" / "squad1.1-large-12gb.flags"
    memory, = {number for text, _ in plans(recipe) for number in re.findall(r"\d+\.\d+ GB", text)}
    for name in ("README.md", "docs/howto/large_on_12gb.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert f"--flagfile=recipes/{recipe.name}" in page and memory in page
