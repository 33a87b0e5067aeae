// Headers that nearly every file includes, compiled once: libtorch's headers take longer than most files' own code.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "engine.h"
