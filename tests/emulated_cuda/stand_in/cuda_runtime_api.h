// Stands in for the toolkit's header where there is no toolkit.
#pragma once

#include "cuda_runtime.h"
