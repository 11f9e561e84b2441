PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PEERS  := .venv-peers
# What tests call has to exist and to fit, but their own functions need not be annotated.
TESTS_NEED_NO_ANNOTATIONS := --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls --no-warn-return-any
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help train test test-slow check generated docs bench bench-peers clean

help:
	@echo "make train   install into $(VENV), train dqn/cartpole and show the result"
	@echo "make test    install what tests need and run the suite"
	@echo "make check   ruff and mypy"
	@echo "make generated  write what follows from the declarations of algorithms and options"
	@echo "make docs    build the documentation site into site/; open site/index.html"
	@echo "make bench   speed, memory and learning against the peers, on this machine; up to an hour"

train: $(VENV)/installed
	$(BIN)/rl-training train dqn/cartpole

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest --slow

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests $(TESTS_NEED_NO_ANNOTATIONS)

generated: $(VENV)/installed
	$(BIN)/python tools/generate.py

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

bench: $(VENV)/installed-bench $(PEERS)/installed
	$(BIN)/python benchmarks/replay_speed.py
	$(BIN)/python benchmarks/drqn_speed.py
	$(BIN)/python benchmarks/drqv2_speed.py
	$(MAKE) bench-peers

bench-peers: $(VENV)/installed-atari $(PEERS)/installed
	$(BIN)/python benchmarks/peers/run.py --peers $(PEERS)/bin/python

clean:
	rm -rf $(VENV) $(PEERS) site .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# C sources, too: they are compiled by the installation.
$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt hatch_build.py $(filter-out %.so,$(wildcard src/rl_training/native/*.*))
	$(PIP) --editable .
	@touch $@

# With an example of somebody else's algorithms, which pass the same tests as those of the package.
$(VENV)/installed-dev: $(VENV)/installed tests/example_package/pyproject.toml
	$(PIP) --editable ".[dev]"
	$(PIP) --editable tests/example_package
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) --editable ".[docs]"
	@touch $@

$(VENV)/installed-atari: $(VENV)/installed
	$(PIP) --editable ".[atari]"
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	$(PIP) --editable ".[bench]"
	@touch $@

# The peers pin what they like, so they have an environment of their own.
$(PEERS)/installed: benchmarks/peers/requirements.txt benchmarks/peers/constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
		--requirement benchmarks/peers/requirements.txt --constraint benchmarks/peers/constraints.txt
	@touch $@
