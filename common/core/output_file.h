// A file that appears whole or not at all. [introduced in chapter 01]
#pragma once

#include <string>

namespace tp {

// Before work starts the constructor proves that the path can be written, so that a bad one is
// refused at once; commit() writes beside the target and renames over it. If the program ends
// before, however it ends, nothing is left behind.
class OutputFile {
 public:
  // Errors: tp::Error (input) naming the path and the reason.
  explicit OutputFile(const std::string& path);

  // Errors: tp::Error (input) if the text cannot be written; the target is then unchanged.
  void commit(const std::string& text) const;

 private:
  std::string path_;
  std::string written_path_;  // beside the target; the target itself if that is no regular file
};

}  // namespace tp
