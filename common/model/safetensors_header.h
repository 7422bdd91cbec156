// The header of a safetensors file: which tensor lies where. [introduced in chapter 06]
//
// A file consists of: 8 bytes, the length N of the header, little-endian; N bytes of JSON; the
// data, which is the bytes of all tensors. The JSON has the dtype, the shape and the place of each
// tensor:
//   {"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}
// Source: the description of the format, github.com/huggingface/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/model/mapped_file.h"
#include "common/model/problems.h"

namespace tp {

// One tensor as the header describes it.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;                 // as the format calls it: "F32", "BF16"
  std::vector<std::uint64_t> shape;  // any number of dimensions
  std::uint64_t begin = 0;           // of its bytes in the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // sorted by name, no name twice
  std::size_t data_begin = 0;             // of the data in the file
};

// Reads a header and checks it completely. Without problems it holds: every tensor lies inside the
// file and is as long as its dtype and shape say; no name stands twice; every byte of the data
// belongs to exactly one tensor. The dtype is one of the format, not always one that can be used.
// Memory is taken for the entries that are there, never by a number that the file claims.
// Errors: tp::Error (input) naming the file if the header is cut off, or is no JSON of that form.
SafetensorsHeader read_safetensors_header(const MappedFile& file, Problems& problems);

}  // namespace tp
