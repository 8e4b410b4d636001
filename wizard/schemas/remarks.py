"""What each field of a struct means: the comment behind it, or right above it, in the source. So a
meaning stands in one place; the schemas and the manual's reference pages read it there."""

import ast
import inspect
import io
import textwrap
import tokenize


def remarks(struct: type) -> dict[str, str]:
    """Each field's comment in the source, also of a struct that it stands on."""
    bases = [b for b in reversed(struct.__mro__) if b.__module__.startswith("narrowdown")]
    return {name: text for base in bases for name, text in _own_remarks(base).items()}


def _own_remarks(struct: type) -> dict[str, str]:
    """Each field's comment: on its own lines, or on the lines right above it."""
    source = textwrap.dedent(inspect.getsource(struct))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# type:")
    }
    (made,) = ast.parse(source).body
    assert isinstance(made, ast.ClassDef)
    said: dict[str, str] = {}
    end = made.lineno
    for node in made.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(end + 1, (node.end_lineno or node.lineno) + 1)
            words = " ".join(comments[line] for line in lines if line in comments)
            said[node.target.id] = words.replace("``", "`")
        end = node.end_lineno or node.lineno
    return said
