// The one exception type of the project; its kind decides the exit code. [introduced in chapter 01]
#pragma once

#include <stdexcept>
#include <string>

namespace tp {

enum class ErrorKind {
  input,   // the user can cure it: options, files, sizes. Exit code 2.
  rank,    // a rank was lost, or the ranks disagreed. Exit code 3.
  device,  // the device that was asked for is not there. Exit code 77.
};

// An error whose message names the thing, its value and what would be right.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// An error that the user can cure.
inline Error input_error(const std::string& message) {
  return Error(ErrorKind::input, message);
}

}  // namespace tp
