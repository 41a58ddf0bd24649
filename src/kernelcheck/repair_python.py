"""Repairs of the Python of a kernel: logic on tensors means what it means to the compiler."""

import ast

from .state import repairs


class _Logic(ast.NodeTransformer):
    """`a and b` on tensors is element-wise for the compiler; Python would return b. `not a` likewise."""

    def visit_BoolOp(self, node):
        node = self.generic_visit(node)
        name = "_kernelcheck_and" if isinstance(node.op, ast.And) else "_kernelcheck_or"
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        first, *others = node.values
        later = [ast.Lambda(args=nothing, body=value) for value in others]
        call = ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=[first, *later], keywords=[])
        return ast.copy_location(call, node)

    def visit_UnaryOp(self, node):
        node = self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        call = ast.Call(func=ast.Name(id="_kernelcheck_not", ctx=ast.Load()), args=[node.operand], keywords=[])
        return ast.copy_location(call, node)


class _NoChains(_Logic):
    """Before 3.9 the compiler rejects `0 <= x < n`, and the interpreter silently kept only `x < n`."""

    def visit_Compare(self, node):
        if len(node.ops) > 1:
            raise SyntaxError(
                f"line {node.lineno} of the kernel: this Triton has no chained comparison, write (a <= x) & (x < b)"
            )
        return self.generic_visit(node)


@repairs("FunctionRewriter.ast_transformer")
def _rewriting(original):
    """Logic on tensors meant something else than in a compiled kernel; see _Logic and _NoChains."""

    class Both:
        def visit(self, tree):
            chains = hasattr(type(original), "visit_Compare")
            return original.visit((_Logic() if chains else _NoChains()).visit(tree))

    return Both()


def _tensor_like(value) -> bool:
    return hasattr(value, "handle")


def _fold(values, stops, method):
    first, *later = values
    result = first
    for thunk in later:
        if not _tensor_like(result) and stops(result):
            return result
        value = thunk()
        if _tensor_like(result):
            result = getattr(result, method)(value)
        elif _tensor_like(value):
            result = getattr(value, method)(result)
        else:
            result = value
    return result


@repairs("_kernelcheck_and")
def _and(original):
    return lambda *values: _fold(values, lambda v: not v, "logical_and")


@repairs("_kernelcheck_or")
def _or(original):
    return lambda *values: _fold(values, bool, "logical_or")


@repairs("_kernelcheck_not")
def _not(original):
    return lambda value: value.__not__() if _tensor_like(value) else not value
