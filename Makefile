# Thin: each line can be typed by hand. README gives the same steps for Windows, without make.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
GPUS ?= 2
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-root)
# glibc: all threads share the one heap that can keep what is freed (d2lite/_memory.py)
export MALLOC_ARENA_MAX ?= 1
NBVAL := $(BIN)/python -m pytest book --nbval-lax -W default
# two files, or two notebooks, at a time; one process would wait most of its time for others
JOBS ?= 2
PARALLEL := -n $(JOBS) --dist loadfile

.PHONY: setup data lab test pretend test-full bench horovod frameworks cluster rings lint clean

setup: ## .venv, made or brought up to date; TORCH=cpu or TORCH=cuda decides by hand
	@$(PYTHON) tools/setup_env.py

data: setup ## Fashion-MNIST, or the drawn stand-in where there is no network
	@$(BIN)/python -m d2lite data

lab: data ## JupyterLab on the book; make lab ARGS=--no-browser passes arguments on
	$(BIN)/jupyter lab book --ip=127.0.0.1 $(ROOT_FLAG) $(ARGS)

test: data ## everything, with few examples and epochs
	D2LITE_QUICK=1 $(BIN)/python -m pytest tests $(PARALLEL) $(ARGS)
	D2LITE_QUICK=1 $(NBVAL) $(PARALLEL) --nbval-cell-timeout=120

pretend: data ## every chapter on GPUS=2 GPUs: real ones where there are some, else pretend GPUs (tests/pretend)
	D2LITE_QUICK=1 D2LITE_PRETEND_GPUS=$(GPUS) PYTHONPATH=$(CURDIR)/tests/pretend \
		$(NBVAL) $(PARALLEL) --nbval-cell-timeout=240

test-full: data ## the same as a learner runs it
	$(BIN)/python -m pytest tests $(ARGS)
	$(NBVAL) --nbval-cell-timeout=600

bench: data ## the comparison table
	$(BIN)/python -m benchmarks $(ARGS)

horovod: setup ## real Horovod, compiled once (minutes), against chapter 6's forty lines and DDP
	$(BIN)/python tools/build_horovod.py
	$(BIN)/python tools/compare_horovod.py

frameworks: setup ## accelerate and Lightning, in an environment of their own, on ranks of a pool
	$(BIN)/python tools/build_frameworks.py
	$(BIN)/python -m pytest tests/tools/test_frameworks.py $(ARGS)

cluster: setup ## two and four hosts as network namespaces (root; else loopback): figures of chapter 7
	$(BIN)/python -m tools.cluster --json benchmarks/results/cluster.json $(ARGS)

rings: setup ## all-reduce algorithms on such hosts (root): figures of chapter 4
	$(BIN)/python -m tools.cluster.rings --json benchmarks/results/rings.json $(ARGS)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

clean: ## removes .venv and the environments of the benchmarks as well
	rm -rf .venv .bench .horovod .frameworks build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
