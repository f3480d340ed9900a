"""The habits of the house, checked: sizes, chains, layers, words, import time."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lamarckian"
MODULES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}

# Where torch, zmq and ray may be imported when a module of that part is loaded.
HEAVY = {"torch": ("rl", "evorl"), "zmq": ("distributed",), "ray": ("distributed",)}
# Bases that are contracts or tools of a library, not links of a chain of ours.
FOREIGN = re.compile(r"^(msgspec|torch|nn|enum|typing|abc|argparse|asyncio|threading|http)\b")

# "eval(" must not match "evaluate(", ".eval()" of torch modules, or "literal_eval(".
FORBIDDEN = {
    "eval(": re.compile(r"(?<![\w.])eval\("),
    "exec(": re.compile(r"(?<![\w.])exec\("),
    "pickle.load": re.compile(r"\bpickle\.(load|loads|Unpickler)\b"),
    "torch.load": re.compile(r"\btorch\.load\("),
    "TO" + "DO": re.compile(r"\bTO" + r"DO\b"),
    "FIX" + "ME": re.compile(r"\bFIX" + r"ME\b"),
    "NotImplemented" + "Error": re.compile(r"\bNotImplemented" + r"Error\b"),
    "workplace path": re.compile(r"(?<![\w.])/work/"),
}


def name_of(path: Path) -> str:
    parts = list(path.relative_to(SOURCE.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported."""
    stack: list[ast.stmt] = list(tree.body)
    while stack:
        node = stack.pop()
        if is_type_checking(node):
            continue
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody"):
                stack += getattr(node, part, [])
            for handler in getattr(node, "handlers", []):
                stack += handler.body


def imported(path: Path) -> set[str]:
    """Return the modules ``path`` imports when it is loaded, ours by the module that is meant."""
    found = set()
    for node in top_level(TREES[path]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in NAMES else base)
    return found


def test_modules_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in MODULES
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }
    assert not long, f"modules over 500 lines: {long}"


def test_packages_only_re_export() -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    for path in MODULES:
        if path.name != "__init__.py":
            continue
        for node in TREES[path].body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            lazy = isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
            assert docstring or lazy or is_type_checking(node) or isinstance(node, allowed), (
                f"{path}:{node.lineno}: a package file only re-exports"
            )


def test_no_module_is_called_utils() -> None:
    odd = {"utils", "util", "helpers", "misc", "common"}
    assert not [name for name in NAMES if set(name.split(".")) & odd]


def test_class_chains_are_short() -> None:
    """Contract -> implementation and no further: a class of ours has at most one ancestor of ours.

    A contract may refine a contract: classes with abstract methods of their own count as one level.
    """
    bases: dict[str, list[str]] = {}
    contracts: set[str] = set()
    for path, tree in TREES.items():
        if path.name == "errors.py":
            continue  # the error tree is two deep below Exception by itself
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).partition("[")[0] for base in node.bases]
                if any(
                    ast.unparse(mark) == "abstractmethod"
                    for method in node.body
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                    for mark in method.decorator_list
                ):
                    contracts.add(node.name)

    def depth(name: str, seen: tuple[str, ...] = ()) -> int:
        if name in seen or name not in bases:
            return 0
        if name in contracts:
            return 1
        ours = [base.rpartition(".")[2] for base in bases[name] if not FOREIGN.match(base)]
        return 1 + max((depth(base, (*seen, name)) for base in ours), default=0)

    deep = {name: depth(name) for name in bases if depth(name) > 2}
    assert not deep, f"class chains longer than contract -> implementation: {deep}"


def test_no_import_cycles() -> None:
    graph = {name: imported(path) & NAMES.keys() for name, path in NAMES.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, "import cycle: " + " -> ".join((*trail, name))
        if name in done:
            return
        for other in sorted(graph[name] - {name}):
            visit(other, (*trail, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_heavy_packages_stay_in_their_part() -> None:
    for name, path in NAMES.items():
        part = [*name.split("."), ""][1]
        roots = {each.partition(".")[0] for each in imported(path)}
        for package, parts in HEAVY.items():
            if package in roots:
                assert part in parts or part == "testing", f"{name} imports {package}"


def test_nothing_imports_testing() -> None:
    for name, path in NAMES.items():
        if not name.startswith("lamarckian.testing"):
            assert not [each for each in imported(path) if each.startswith("lamarckian.testing")], (
                name
            )


@pytest.mark.parametrize("word", FORBIDDEN)
def test_forbidden_words(word: str) -> None:
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("src", "benchmarks", "examples", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__).resolve()
        and not (folder == "tests" and word in ("pickle.load", "exec("))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FORBIDDEN[word].search(line)
    ]
    assert not places, f"'{word}' in {places}"


def test_pitfalls_ins_03_the_package_loads_fast_and_without_torch() -> None:
    code = (
        "import time; start = time.perf_counter()\n"
        "import lamarckian; print(time.perf_counter() - start)\n"
        "import sys\n"
        "heavy = {'torch', 'zmq', 'ray', 'gymnasium', 'rich'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    seconds = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        seconds.append(float(done.stdout))
    assert min(seconds) < 1.0


def test_test_modules_have_names_of_their_own() -> None:
    """pytest imports test modules by base name: a second one of the same name is not collected."""
    names = [
        path.name
        for path in (ROOT / "tests").rglob("*.py")
        if path.stem not in ("__init__", "conftest")
    ]
    assert sorted(set(names)) == sorted(names)
