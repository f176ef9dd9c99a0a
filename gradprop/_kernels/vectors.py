"""Words for writing LLVM's vector instructions: what loops in Python's clothes cannot say.

A tile of a product is as fast as the processor only if its sums stay in registers, which LLVM
arranges for explicit vectors alone. All functions take the builder and, where it matters, a vector
type: any number of lanes of float32, float64 or int64. What the processor lacks, LLVM splits.
"""

import numba
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils

INT32, INT64, FLOAT, DOUBLE = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()


def has(feature):
    """Whether the processor that Numba compiles for has a feature of LLVM's, such as avx512f."""
    chosen = getattr(numba.config, "CPU_FEATURES", None)
    if chosen is not None:
        return f"+{feature}" in chosen.split(",")
    if getattr(numba.config, "CPU_NAME", None) == "generic":
        return False
    return bool(binding.get_host_cpu_features().get(feature, False))


def constant(number):
    """An int64."""
    return ir.Constant(INT64, number)


def filled(vector, number):
    """A vector of one number known beforehand."""
    return ir.Constant(vector, [number] * vector.count)


def moved(builder, pointer, *steps):
    """A pointer some entries on; steps are numbers or values of int64."""
    for step in steps:
        pointer = builder.gep(pointer, [constant(step) if isinstance(step, int) else step])
    return pointer


def _bytes(vector):
    """Size of an entry, which is all that arrays are aligned to."""
    return 4 if vector.element == FLOAT else 8


def load(builder, vector, pointer):
    """The vector that starts at a pointer to its first entry."""
    value = builder.load(builder.bitcast(pointer, vector.as_pointer()))
    value.align = _bytes(vector)
    return value


def store(builder, value, pointer):
    """Put a vector where its first entry is pointed to."""
    place = builder.bitcast(pointer, value.type.as_pointer())
    builder.store(value, place).align = _bytes(value.type)


def shuffled(builder, a, b, lanes):
    """Entries of two vectors (of the first alone if b is None) picked by their numbers."""
    b = ir.Constant(a.type, ir.Undefined) if b is None else b
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INT32, len(lanes)), lanes))


def splat(builder, vector, scalar):
    """A vector of one number."""
    none = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(none, scalar, ir.Constant(INT32, 0))
    return shuffled(builder, first, None, [0] * vector.count)


def intrinsic_of(builder, name, *operands):
    """Call LLVM's own function of vectors of floats: fmuladd, fabs, sqrt."""
    vector = operands[0].type
    kind = ir.FunctionType(vector, [vector] * len(operands))
    full = f"llvm.{name}.v{vector.count}f{8 * _bytes(vector)}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), operands)


def multiply_add(builder, x, y, z):
    """x y + z; fused where the processor can."""
    return intrinsic_of(builder, "fmuladd", x, y, z)


def firsts(context, builder, kinds, values):
    """Arguments of an intrinsic: of arrays the pointer to their first entry."""
    return [
        context.make_array(kind)(context, builder, value).data
        if isinstance(kind, types.Array)
        else value
        for kind, value in zip(kinds, values, strict=True)
    ]


def written(name, body):
    """What an intrinsic returns beside its signature, to become a function of its own.

    body(builder, *arguments) gets pointers to the first entries of arrays. Not inlined, so that
    what stands around does not compete for registers, and is compiled once.
    """

    def emit(context, builder, signature, arguments):
        values = firsts(context, builder, signature.args, arguments)
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        function = cgutils.get_or_insert_function(builder.module, kind, f"gradprop.{name}")
        if function.is_declaration:
            function.linkage = "internal"
            function.attributes.add("noinline")
            inner = ir.IRBuilder(function.append_basic_block("entry"))
            body(inner, *function.args)
            inner.ret_void()
        builder.call(function, values)
        return context.get_dummy_value()

    return emit


def loop(builder, count, first):
    """Open a loop of `count` rounds over values that start as `first`.

    Returns the values, and a function that closes the loop, given those of the next round. Behind
    the loop the values are those after its last round.
    """
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    carried = []
    for start in (constant(0), *first):
        carried.append(builder.phi(start.type))
        carried[-1].add_incoming(start, before)
    builder.cbranch(builder.icmp_signed("<", carried[0], count), body, after)
    builder.position_at_end(body)

    def close(following):
        following = [builder.add(carried[0], constant(1)), *following]
        for value, new in zip(carried, following, strict=True):
            value.add_incoming(new, builder.block)
        builder.branch(head)
        builder.position_at_end(after)

    return carried[1:], close
