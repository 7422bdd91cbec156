// Weight files: tensors by name, without copying them. [introduced in chapter 06]
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/tensor.h"
#include "common/model/mapped_file.h"
#include "common/model/safetensors_header.h"

namespace tp {

// The tensors of a model folder. What is read of a tensor is loaded page by page from its file, the
// rest never. Nothing changes after opening, so all ranks can share one object. Views are valid as
// long as this object; moving it keeps them.
class Safetensors {
 public:
  // Opens a model folder: the files that its model.safetensors.index.json names or, without an
  // index, its model.safetensors. With an index, each tensor comes from the file that the index
  // names for it, and from no other. A path to one safetensors file opens that file.
  // Errors: tp::Error (input) naming the file, with all problems of all headers at once, see
  //         read_safetensors_header; also if the index names a file that is missing or outside
  //         the folder, or a tensor that its file does not have.
  static Safetensors open(const std::filesystem::path& path);

  bool contains(std::string_view name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;  // sorted

  // The tensor where it lies in the file, in the dtype that it is stored in. The format does not
  // align tensors, so the view may not be aligned() either: copy_host reads it anyway.
  // Errors: tp::Error (input) naming the file and the tensor if there is no such tensor, if it is
  //         stored as something else than F32, BF16 or F16, or has more than four dimensions.
  ConstTensorView tensor(std::string_view name) const;

  // The files, in the order of their names, and the place of some bytes of a tensor in them.
  // Errors: tp::Error if the bytes are in none of the files.
  struct BytePlace {
    std::size_t file = 0;     // index into files()
    std::int64_t offset = 0;  // from the begin of the file
  };
  const std::vector<MappedFile>& files() const { return files_; }
  BytePlace place_of(const std::byte* data) const;

  // What the user might want to know, one line each: tensors and files that the index leaves out.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Stored {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::size_t file = 0;  // in files_
    const std::byte* data = nullptr;
  };
  struct OpenFile {
    OpenFile(const std::filesystem::path& path, Problems& problems)
        : mapping(path), header(read_safetensors_header(mapping, problems)) {}

    MappedFile mapping;
    SafetensorsHeader header;
  };

  static Safetensors open_file(const std::filesystem::path& path);
  static Safetensors open_sharded(const std::filesystem::path& index);
  // Takes over a file whose header has no problems.
  void add(OpenFile file);

  std::string path_;  // for messages: of the file or the index
  std::map<std::string, Stored, std::less<>> tensors_;
  std::vector<MappedFile> files_;
  std::vector<std::string> notes_;
};

}  // namespace tp
