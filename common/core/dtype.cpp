#include "common/core/dtype.h"

#include <string>

#include "common/core/error.h"

namespace tp {

std::size_t size_of(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? 2 : 4;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
  }
  return "?";
}

DType dtype_from_name(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32})
    if (name_of(dtype) == name) return dtype;
  throw input_error("dtype " + std::string(name) + ": must be f32, bf16, f16 or i32");
}

}  // namespace tp
