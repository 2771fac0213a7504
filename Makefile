# Thin: each line can be typed by hand. docs/where-it-runs.md has the same steps without make.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
GPUS ?= 2
# the index is opened; settings of the project's own: no question about news, Markdown as pages, room for file names
LAB := --LabApp.default_url=/lab/tree/index.ipynb --LabApp.app_settings_dir=tools/jupyterlab --ip=127.0.0.1
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-root)
# glibc: all threads share the one heap that can keep what is freed (packages/notebook_ranks/src/notebook_ranks/shared/malloc.py)
export MALLOC_ARENA_MAX ?= 1
# pytest rewrites each file of tests: without bytecode each worker does so in each run, 20 s of a processor
unexport PYTHONDONTWRITEBYTECODE
# no notebook needs a network, or more images than come with the package
NBVAL := D2LITE_OFFLINE=1 D2LITE_DATA= $(BIN)/python -m pytest --nbval-lax -p tests.book.expected_output -p tests.book.kernel_start -W default
CHAPTERS := $(shell ls -r book/*.ipynb) # the long ones are the last
# GPUS GPUs for notebooks: real ones where there are some, else pretend ones
AT_START := $(CURDIR)/packages/ddp_rehearsal/src/ddp_rehearsal/pretend_gpus/at_start
ON_GPUS = $(if $(filter 0,$(GPUS)),,D2LITE_PRETEND_GPUS=$(GPUS) PYTHONPATH=$(AT_START))
# so many files, or notebooks, at a time: they wait for processes half of their time
JOBS ?= 3
# a test of processes or of the browser that fails on a busy machine runs once more, and is listed as RERUN
RERUN := --reruns 1 -rR
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# a test that hangs fails, and the stacks of its threads are printed
BOUND := --timeout=600 --timeout-method=thread

.PHONY: setup lab test test-slow test-release pretend test-full bench horovod frameworks graders binder hub hub-tests cluster rings slurm wheels packages release badges navigation pages lint help clean

setup: ## .venv, made or brought up to date; TORCH=cpu or TORCH=cuda decides by hand
	@$(PYTHON) tools/setup_env.py

lab: setup ## JupyterLab on the book; make lab ARGS=--no-browser passes arguments on
	$(BIN)/jupyter lab book $(LAB) $(ROOT_FLAG) $(ARGS)

test: export D2LITE_QUICK = 1
test: export D2LITE_LEDGER = off
test: setup ## the quick tests; every chapter on two GPUs, with few examples and epochs
	$(BIN)/python -m pytest tests packages -m "not slow and not release" $(PARALLEL) $(BOUND) $(RERUN) $(ARGS)
	$(ON_GPUS) $(NBVAL) $(CHAPTERS) $(PARALLEL) $(BOUND) --nbval-cell-timeout=300

test-slow: export D2LITE_QUICK = 1
test-slow: export D2LITE_LEDGER = off
test-slow: setup ## tests of more than four seconds each; appendices and solutions on two GPUs
	$(BIN)/python -m pytest tests packages -m "slow and not release" $(PARALLEL) $(BOUND) $(RERUN) $(ARGS)
	$(ON_GPUS) $(NBVAL) book/appendix book/solutions $(PARALLEL) $(BOUND) --nbval-cell-timeout=300

test-release: export D2LITE_QUICK = 1
test-release: export D2LITE_LEDGER = off
test-release: setup ## tests that take long, or need what only a release needs; a part of make release
	$(BIN)/python -m pytest tests packages -m release -n $(JOBS) --dist worksteal --timeout=900 $(RERUN) $(ARGS)

pretend: export D2LITE_QUICK = 1
pretend: export D2LITE_LEDGER = off
pretend: NOTEBOOKS ?= $(CHAPTERS) book/appendix book/solutions
pretend: setup ## every notebook on GPUS=2 GPUs (0: on the CPU), with few examples and epochs; NOTEBOOKS=... chooses some
	$(ON_GPUS) $(NBVAL) $(NOTEBOOKS) $(PARALLEL) $(BOUND) --nbval-cell-timeout=300

test-full: export D2LITE_LEDGER = off
test-full: setup ## everything as a learner runs it, and every notebook on 1 and on 4 GPUs
	$(BIN)/python -m pytest tests packages $(ARGS)
	$(NBVAL) book --nbval-cell-timeout=600
	$(MAKE) pretend GPUS=1
	$(MAKE) pretend GPUS=4

bench: setup ## the comparison table; downloads all 60,000 training images
	$(BIN)/python -m benchmarks $(ARGS)

horovod: setup ## real Horovod, compiled once (minutes), against chapter 6's forty lines and DDP
	$(BIN)/python tools/build_horovod.py
	$(BIN)/python tools/compare_horovod.py

frameworks: setup ## the same steps in Gluon, TensorFlow and JAX, for the appendix to chapter 3; installs 2.5 GB, once
	$(BIN)/python -m benchmarks.records.frameworks --save frameworks $(ARGS)

graders: setup ## the same submissions by our grader, nbgrader and otter, which are installed into .bench once
	PYTHONPATH=$(CURDIR) $(BIN)/python tools/compare_graders.py $(ARGS)

binder: setup ## the environment of binder/ by repo2docker's steps, and the book measured in it; takes half an hour
	$(BIN)/python -m tools.build_binder $(ARGS)

hub: setup ## a JupyterHub on this machine alone; make hub ARGS="--learners ada ben" names the accounts
	$(BIN)/python -m tools.hub $(ARGS)

hub-tests: setup ## JupyterHub installed into .bench, and three learners at once on it
	$(BIN)/python -c "from tools.hub.install import install; install()"
	$(BIN)/python -m pytest -q tests/browser/test_hub_browser.py

cluster: setup ## two and four hosts as network namespaces (root; else loopback): figures of chapter 7
	$(BIN)/python -m tools.cluster --json benchmarks/results/cluster.json $(ARGS)

rings: setup ## all-reduce algorithms on such hosts (root): figures of chapter 4
	$(BIN)/python -m tools.cluster.rings --json benchmarks/results/rings.json $(ARGS)

slurm: setup ## a real Slurm on two nodes inside this machine (root); make slurm ARGS=shell opens a shell on it
	$(BIN)/python -m tools.slurm $(ARGS)

wheels: setup ## sdist and wheel, installed into a fresh environment, with chapters run in a copy of the book
	$(BIN)/python tools/check_install.py $(ARGS)

packages: setup ## the three packages beside d2lite, each alone in a fresh environment
	$(BIN)/python -m tools.check_packages $(ARGS)

release: setup ## what guards a release, in one table: takes two hours
	$(BIN)/python -m tools.release $(ARGS)

badges: setup ## REPO=owner/name REF=v1: badges, and the line that installs from there, in the chapters
	$(BIN)/python tools/badges.py --repo $(REPO) --ref $(REF)

navigation: setup ## the links at both ends of each notebook, the goals of each chapter, the tables of chapters
	$(BIN)/python tools/navigation.py
	$(BIN)/python tools/chapter_goals.py

pages: setup ## docs/rooms.md and docs/exercises.md, from the code; they are not committed
	$(BIN)/python -m tools.rooms
	$(BIN)/python -m tools.wrong_answers

lint: setup ## ruff (layout, mistakes) and mypy (types); they only report
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

help: ## this list; each line of a target can be typed by hand
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

clean: ## removes .venv and the environments of the benchmarks as well
	rm -rf .venv .bench .horovod build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
