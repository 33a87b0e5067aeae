#include "kernels/instruction-set.h"

#include <ATen/Context.h>

#include "kernels/isa.h"

namespace astra {

const char* instructionSetName() { return astraIsaName(isa()); }

bool multipliesBfloat16() { return astraMultipliesBfloat16(isa()); }

// libtorch passes bfloat16 products to oneDNN depending on the processor; if ASTRA_ISA prevents oneDNN from using its
// instructions, oneDNN would refuse them.
void keepLibtorchWithinInstructionSet() {
  if (isa() < kIsaAvx512 && astraMachineIsa(0) >= kIsaAvx512) at::globalContext().setUserEnabledMkldnn(false);
}

}  // namespace astra
