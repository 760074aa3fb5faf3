# `make run` and `make test` do all the set-up that they need; both are safe to repeat.
PY := .venv/bin/python
.DEFAULT_GOAL := help
.PHONY: help run test package format docs lock proto setup

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16
run: setup ## controller and agent on this machine, real input, till Ctrl-C
	@exec $(PY) scripts/run.py $(ARGS)
test: setup ## lint, types, layers, generated stubs, tests (ARGS="-k word" for some tests)
	@scripts/debian-packages.sh tests/debian-packages.txt
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	scripts/proto.sh --check
	scripts/test.sh $(ARGS)
package: setup ## .deb and .rpm of all three packages, wheel and sdist into dist/ (ARGS="--revision 2 nodetriage")
	packaging/build.sh $(ARGS)
format: setup ## format the code, mend what ruff can mend
	.venv/bin/ruff check --fix-only . && .venv/bin/ruff format .
docs: setup ## rewrite the pages that are made from the code
	$(PY) scripts/reference.py && $(PY) -m nodetriage.checks.document >docs/faults.md
	$(PY) scripts/kernel_lines.py >docs/kernel-lines.md
proto: setup ## regenerate the stubs of health.proto
	scripts/proto.sh
lock: setup ## bring requirements.lock up to pyproject.toml (ARGS=--upgrade for newer versions)
	scripts/lock.sh $(ARGS)
setup: ## install everything that requirements.lock names into .venv
	@scripts/setup.sh
