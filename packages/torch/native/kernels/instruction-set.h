// What the rest of the addon may know of the instruction set that the kernels use.
#pragma once

namespace astra {

// "baseline", "avx2", …
const char* instructionSetName();

// Whether the processor multiplies bfloat16 numbers without widening them.
bool multipliesBfloat16();

// Keeps libtorch from instructions that ASTRA_ISA excludes.
void keepLibtorchWithinInstructionSet();

}  // namespace astra
