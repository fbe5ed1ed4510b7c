"""A translator of expressions to C.

In the programs that p4c makes for BMv2, arithmetic is over unbounded integers with explicit
wrapping. Every expression therefore has a range of possible values, and the range decides the C
type: 64 bits if they are enough, otherwise 128. A larger value has two forms. One form is its
lowest 128 bits, which are enough if the value is wrapped again at once. The other form is limbs:
64-bit words, as many as the widest value of the program needs.

`number` has integers with their ranges, `arithmetic` the operators on them, and `byte_arrays` the
fields that C does not store as integers. `rendering` translates whole expressions.
"""
