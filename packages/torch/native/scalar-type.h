// Dtypes cross the border as c10::ScalarType's numbers.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace astra {

// Refuses codes of types that are not offered (complex, quantized).
c10::ScalarType readScalarTypeCode(int64_t code, const std::string& name = "dtype");

}  // namespace astra
