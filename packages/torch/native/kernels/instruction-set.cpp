#include "kernels/instruction-set.h"

#include <ATen/Context.h>

#include "kernels/isa.h"

namespace astra {

const char* instructionSetName() { return astraIsaName(isa()); }

bool multipliesBfloat16() { return astraMultipliesBfloat16(isa()); }

// libtorch hands bfloat16 products to oneDNN by what the processor has; where ASTRA_ISA keeps oneDNN from using it, oneDNN
// would refuse them.
void keepLibtorchWithinInstructionSet() {
  if (isa() < kIsaAvx512 && astraMachineIsa(0) >= kIsaAvx512) at::globalContext().setUserEnabledMkldnn(false);
}

}  // namespace astra
