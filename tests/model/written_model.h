// A model folder with weights of a test's choice.
#pragma once

#include <functional>
#include <string>

#include "common/core/matrix.h"
#include "common/model/weights.h"
#include "tests/checkpoint.h"

namespace tp {

// A folder with this config.json and every tensor that it calls for, in f32, with the values that
// `values` gives for it; a matrix without rows leaves the tensor out.
class WrittenModel {
 public:
  using Values = std::function<Matrix(const ExpectedTensor&)>;

  WrittenModel(const std::string& config, const Values& values) {
    folder_.write("config.json", config);
    for (const ExpectedTensor& tensor : expected_tensors(ModelConfig::load(folder_.path()))) {
      const Matrix matrix = values(tensor);
      if (matrix.rows > 0) append(tensor.name, tensor.shape, matrix);
    }
    write();
  }

  // A tensor that the config does not call for.
  void add(const std::string& name, const Shape& shape, const Matrix& values) {
    append(name, shape, values);
    write();
  }

  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  void append(const std::string& name, const Shape& shape, const Matrix& values) {
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < shape.dims(); ++i) sizes.push_back(shape[i]);
    file_.add(name, "F32", sizes, bytes_of(values.values));
  }
  void write() { folder_.write("model.safetensors", file_.bytes()); }

  TempFolder folder_;
  SafetensorsFile file_;
};

}  // namespace tp
