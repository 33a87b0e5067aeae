// Interface of the rest of the addon to the kernels' instruction set.
#pragma once

namespace astra {

// "baseline", "avx2", …
const char* instructionSetName();

// Whether the processor multiplies bfloat16 numbers without widening them.
bool multipliesBfloat16();

// Prevents libtorch from using instructions that ASTRA_ISA excludes.
void keepLibtorchWithinInstructionSet();

}  // namespace astra
