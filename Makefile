# `make help` says what there is. Every target sets up what it needs (tools/setup) and may be repeated.
#
# Variables, on the command line or in the environment:
#   INVENTORY=path   measure your own hosts instead of the embedded lab
#   ARGS='…'         more arguments for ansible-playbook (benchmark, lab-up, lab-down) or pytest (test, unit)
#   KEEP_LAB=1       leave the lab up after the benchmark
#   NO_INSTALL=1     install nothing; say what is missing
#   PYTHON=path      the interpreter of .venv (3.11 or later)

INVENTORY ?= inventory
ARGS ?=
BIN := .venv/bin
COLLECTION := .cache/collections/ansible_collections/linkops/bulkcopy
TESTS = $(wildcard tests/unit) $(wildcard tests/integration)
BENCHES = $(sort $(wildcard tests/bench/bench_*.py))

# The user's own settings of these name other places, and an ansible.cfg in a world-writable folder is ignored.
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/.cache/collections
# Ansible refuses a locale that is not UTF-8, which a bare machine has.
export LC_ALL := C.UTF-8
export INVENTORY NO_INSTALL KEEP_LAB PYTHON

KEEP = $(filter-out 0,$(KEEP_LAB))
PLAYBOOK = $(BIN)/ansible-playbook -i "$$INVENTORY" $(if $(KEEP),-e '{"bulkcopy_keep_lab": true}')

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup benchmark test unit lint format bench dist lab-up lab-down clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|' 2>/dev/null || \
		sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' $(firstword $(MAKEFILE_LIST))
	@sed -n '/^# Variables/,/^$$/s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

# An interrupted playbook cleans up nothing, so the lab is taken down here.
benchmark: ## measure every method on every link of the inventory and print the verdicts
	@tools/setup benchmark "$$INVENTORY"
	@trap : HUP INT TERM; status=0; $(PLAYBOOK) playbooks/benchmark.yml $(ARGS) || status=$$?; \
		if [ $$status -ge 99 ] && [ "$$INVENTORY$(KEEP)" = inventory ] && [ -e /run/linkops-bulkcopy-lab ]; then \
			echo "interrupted: taking the lab down"; $(PLAYBOOK) playbooks/lab.yml -e lab_state=absent; fi; \
		exit $$status

# Nothing is printed after pytest's own count.
test: setup lint ## check style and types, then run every test (as root: integration tests build the lab)
	@$(BIN)/python -m pytest $(TESTS) $(ARGS)

unit: ## run the fast tests only; needs no root
	@tools/setup dev
	@$(BIN)/python -m pytest tests/unit $(ARGS)

lint: ## check formatting, style, types and Ansible content
	@tools/setup dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "These need: make format" >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary $(COLLECTION)/plugins
	@[ -t 1 ] || export NO_COLOR=1; PATH="$(CURDIR)/$(BIN):$$PATH" ANSIBLE_HOME="$(CURDIR)/.cache/ansible" ansible-lint

format: ## rewrite Python files in the project's formatting
	@tools/setup dev
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

bench: ## run the performance benchmarks, tests/bench/bench_*.py, one after another
	@tools/setup bench
	@failed=; for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python "$$bench" || failed="$$failed $$bench"; done; \
		[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

dist: ## build the collection's archive into dist/ and check what is inside
	@tools/setup dev
	@rm -rf dist
	@ANSIBLE_HOME="$(CURDIR)/.cache/ansible" $(BIN)/ansible-galaxy collection build --output-path dist
	@git ls-files | sort >.cache/tracked
	@tar -tzf dist/*.tar.gz | grep -v -e '/$$' -e '^MANIFEST.json$$' -e '^FILES.json$$' | sort >.cache/packed
	@stray=$$(comm -13 .cache/tracked .cache/packed); [ -z "$$stray" ] || \
		{ printf 'dist: in the archive, but not under version control:\n%s\n' "$$stray" >&2; exit 1; }
	@lost=$$(grep -E '^(README|LICENSE|CHANGELOG|meta/|plugins/|roles/|playbooks/)' .cache/tracked | comm -23 - .cache/packed); \
		[ -z "$$lost" ] || { printf 'dist: not in the archive:\n%s\n' "$$lost" >&2; exit 1; }
	@ls dist/*.tar.gz

lab-up: ## bring up the embedded lab and leave it up
	@tools/setup lab
	@$(PLAYBOOK) playbooks/lab.yml $(ARGS)

lab-down: ## take the embedded lab down
	@tools/setup lab
	@$(PLAYBOOK) playbooks/lab.yml -e lab_state=absent $(ARGS)

setup: ## install what the other targets need, and do nothing more
	@tools/setup test

clean: ## remove .venv, .cache and dist; results/ is kept
	@rm -rf .venv .cache dist
