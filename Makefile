# ctxkit: `make demo` or `make lab` to begin, `make help` for the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# the uv of the machine, else the one that pip puts into the environment
UV     ?= $(shell command -v uv || echo $(BIN)/uv)
# Forks of one process share imports and collection; elsewhere than on Linux libraries may not survive a fork.
WORKERS := $(if $(filter Linux,$(shell uname)),--workers 4,-n 4 --dist worksteal)
# JupyterLab refuses to run as root unless told that it is meant, as in a container.
ROOT   := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help requirements demo lab install test test-all test-peers test-engines check format bench conformance same-as frontier pictures trust studies answers notebooks handouts docs release clean test-map quick mutants planted defaults

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV)."
	@command -v $(UV) >/dev/null || { \
	  awk '/^uv==/ {on = 1; print; next} /^[^ ]/ {on = 0} on' requirements-dev.txt >$(VENV)/uv.txt && \
	  $(PIP) --require-hashes -r $(VENV)/uv.txt || echo "There is no uv: pip does it, in minutes."; }
	@{ command -v $(UV) >/dev/null && \
	  $(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.txt && \
	  $(UV) pip install --quiet --python $(BIN)/python --no-deps -e .; } || \
	{ $(PIP) --require-hashes -r requirements-dev.txt && $(PIP) --no-deps -e .; }
	@touch $@

install: $(STAMP)  ## make .venv and install everything into it

requirements: $(STAMP)  ## write the versions and hashes of requirements-dev.txt anew
	$(UV) pip compile pyproject.toml --extra dev --universal --generate-hashes --upgrade --no-header --no-annotate --quiet -o requirements-dev.txt

demo: $(STAMP)  ## what a bundled session says: in the terminal, as a page and as a notebook
	$(BIN)/ctxkit demo build/demo

lab: $(STAMP)  ## open JupyterLab on the first notebook
	$(BIN)/python -m jupyterlab $(ROOT) notebooks/01-read-a-session.ipynb

test: $(STAMP)  ## the suite, under eight minutes (long families sampled with a printed seed)
	$(BIN)/python -m pytest -p no:nbval $(WORKERS) -m "not long" tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --nbval-lax --nbval-current-env -p no:cacheprovider notebooks

test-all: $(STAMP)  ## everything, also what is long: all mutations, all kills, both themes
	CTXKIT_TEST_ALL=1 $(BIN)/python -m pytest -p no:nbval $(WORKERS) tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --nbval-lax --nbval-current-env -p no:cacheprovider notebooks

test-map: $(STAMP)  ## record which test reaches which line, for quick and mutants: make test-map TESTS=tests/metrics
	$(BIN)/python -m benchmarks.tests_by_line record $(TESTS)

quick: $(STAMP)  ## only the tests that the working change reaches, by that map: make quick BASE=main
	$(BIN)/python -m benchmarks.tests_by_line quick --base $(or $(BASE),HEAD)

mutants: $(STAMP)  ## plant single faults and list those that no test notices: make mutants PACKAGE=metrics,engine COUNT=100 SEED=7
	$(BIN)/python -m benchmarks.mutation_testing $(or $(PACKAGE),metrics) --count $(or $(COUNT),20) --seed $(or $(SEED),1) $(if $(KEEP),--keep)

planted: $(STAMP)  ## apply the mistakes of tests/planted, each in a copy of the tree: the tests must notice every one
	$(BIN)/python -m benchmarks.planted_mistakes

defaults: $(STAMP)  ## write every default and constant of policies, presets, engine, metrics, formats and agent into tests/setting_defaults.json
	$(BIN)/python tests/setting_defaults.py

test-peers: with-peers with-peers-older  ## presets and recorders beside the packages they follow (OpenHands: PYTHON=python3.12)
	.venv-peers/bin/python docs/make_conformance.py

with-%:
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	CTXKIT_PEERS=docs/peers.json .venv-$*/bin/python -m pytest -q tests/peers tests/agent/recorders/test_framework_recording.py tests/agent/recorders/test_http_recording.py

test-engines: $(STAMP)  ## presets beside the programs' own code, from npm, on the sessions of CTXKIT_SESSIONS (node 24.16 or later)
	npm install --prefix .engines --ignore-scripts --omit=optional --no-audit --no-fund \
	  pi58@npm:@mariozechner/pi-coding-agent@0.58.3 pi73@npm:@mariozechner/pi-coding-agent@0.73.1 \
	  pi1@npm:@earendil-works/pi-coding-agent@1.6.0 ai@7.0.173 openclaw@2026.9.6 \
	  @google/gemini-cli-core@0.61.0 @qwen-code/qwen-code@0.24.4
	-npm install --prefix .engines --ignore-scripts --no-audit --no-fund @anthropic-ai/claude-code-linux-x64@2.1.332
	CTXKIT_ENGINES=.engines CTXKIT_ENGINES_TABLE=docs/engines.json $(BIN)/python -m pytest -q tests/engines
	$(BIN)/python docs/make_conformance.py

check: $(STAMP)  ## ruff, mypy --strict, import-linter, codespell, proselint
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell *.md docs ctxkit
	$(BIN)/python docs/check_prose.py

format: $(STAMP)  ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## ratios against peers, written to docs/benchmarks.md
	$(BIN)/python -m benchmarks

same-as: $(STAMP)  ## what this tree and another commit say of the sessions of CTXKIT_SESSIONS: make same-as COMMIT=abc
	$(BIN)/python -m benchmarks.compare_commits $(COMMIT)

frontier: $(STAMP)  ## sweep the sessions of CTXKIT_SESSIONS under every preset into docs/frontier.csv
	$(BIN)/python -m benchmarks.frontier

pictures: $(STAMP)  ## the pictures of README and docs, and of every view into build/pictures: light, dark, narrow, without a kernel
	$(BIN)/python docs/make_pictures.py
	PYTHONPATH=tests $(BIN)/python -m browser.take_pictures build/pictures

trust: $(STAMP)  ## hold the figures against what was not used to make them, into docs/trust.md
	$(BIN)/python docs/make_trust.py

answers: $(STAMP)  ## measure the answers that have a page of their own (when, idle, keep-rules, exam, forecasts), and draw their pictures
	$(BIN)/python docs/make_answers.py

studies: $(STAMP)  ## the tables of ck.studies, from the published runs in CTXKIT_STUDIES (or beside CTXKIT_SESSIONS)
	$(BIN)/python docs/make_studies.py

notebooks: $(STAMP)  ## run the notebooks and store what they show: text, tables and pictures
	$(BIN)/python docs/make_notebooks.py

handouts: $(STAMP)  ## slides, pages and PDFs of the notebooks, for a class, into handouts/ (needs npm once)
	npm install --prefix .slides --ignore-scripts --no-audit --no-fund reveal.js@4
	$(BIN)/python docs/teaching/handouts.py handouts .slides/node_modules/reveal.js

docs: $(STAMP)  ## the site, in build/site: without a network, links checked
	$(BIN)/python docs/make_site.py

release: $(STAMP)  ## wheel and sdist into dist/, checked, installed and used in an empty environment
	rm -rf dist
	$(BIN)/python -m build -o dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m check_wheel_contents dist/*.whl
	$(BIN)/python -m pytest -q tests/test_wheel.py

clean:  ## remove what was made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
