#include "common/model/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/json.h"
#include "common/model/problems.h"

namespace tp {

namespace {

// The dtype of the project for one of the format; nothing for those that no weights here use.
std::optional<DType> usable_dtype(std::string_view stored) {
  if (stored == "F32") return DType::f32;
  if (stored == "BF16") return DType::bf16;
  if (stored == "F16") return DType::f16;
  return std::nullopt;
}

std::optional<Shape> usable_shape(const std::vector<std::uint64_t>& sizes) {
  const auto size = [&](std::size_t dim) { return static_cast<std::int64_t>(sizes[dim]); };
  switch (sizes.size()) {
    case 0:
      return Shape{};
    case 1:
      return Shape{size(0)};
    case 2:
      return Shape{size(0), size(1)};
    case 3:
      return Shape{size(0), size(1), size(2)};
    case 4:
      return Shape{size(0), size(1), size(2), size(3)};
    default:
      return std::nullopt;
  }
}

// "A, B, C and 17 more"
std::string name_some(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNames = 5;
  const std::size_t shown = std::min(names.size(), kMaxNames);
  const auto begin = names.begin();
  std::string text =
      fmt::format("{}", fmt::join(begin, begin + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// The names of tensors, by the name of the file that the index says they are in.
using WeightMap = std::map<std::string, std::set<std::string>>;

// A file beside the index: a path could lead to any file of this machine.
bool is_file_name(const std::string& text) {
  return text != "" && text != "." && text != ".." &&
         text.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Errors: tp::Error (input) with all problems, also if a file is missing.
WeightMap read_weight_map(const std::filesystem::path& index) {
  const nlohmann::json json = read_json(index);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object())
    throw input_error(fmt::format("{}: must have a weight_map, an object of tensor and file names",
                                  index.string()));
  WeightMap names_by_file;
  Problems problems;
  for (const auto& [name, file] : map->items()) {
    if (file.is_string() && is_file_name(file.get<std::string>()))
      names_by_file[file.get<std::string>()].insert(name);
    else
      problems.add(
          fmt::format("{}: weight_map has {} for {}: must be the name of a file in this folder",
                      index.string(), describe(file), describe(name)));
  }
  for (const auto& [file, names] : names_by_file) {
    std::error_code ignored;
    if (!std::filesystem::exists(index.parent_path() / file, ignored))
      problems.add(fmt::format("{}: weight_map names the file {} ({} tensors), which is missing",
                               index.string(), describe(file), names.size()));
  }
  problems.throw_if_any();
  return names_by_file;
}

// Safetensors files beside the index that it does not name.
std::vector<std::string> unnamed_files(const std::filesystem::path& index,
                                       const WeightMap& weight_map) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(index.parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") && !weight_map.contains(name))
      files.push_back(describe(name));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Safetensors Safetensors::open(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return open_file(path);
  const std::filesystem::path index = path / "model.safetensors.index.json";
  // A link whose target is missing counts as an index: it must not be overlooked.
  if (std::filesystem::exists(std::filesystem::symlink_status(index, ignored)))
    return open_sharded(index);
  return open_file(path / "model.safetensors");
}

Safetensors Safetensors::open_file(const std::filesystem::path& path) {
  Problems problems;
  OpenFile file(path, problems);
  problems.throw_if_any();

  Safetensors result;
  result.path_ = path.string();
  result.add(std::move(file));
  return result;
}

Safetensors Safetensors::open_sharded(const std::filesystem::path& index) {
  const WeightMap weight_map = read_weight_map(index);
  Safetensors result;
  result.path_ = index.string();
  if (const auto unnamed = unnamed_files(index, weight_map); !unnamed.empty())
    result.notes_.push_back(
        fmt::format("{}: does not name {}, not opened", result.path_, name_some(unnamed)));
  Problems problems;
  std::vector<OpenFile> files;
  for (const auto& [file_name, names] : weight_map) {
    OpenFile& file = files.emplace_back(index.parent_path() / file_name, problems);
    std::set<std::string> missing = names;
    std::vector<std::string> unused;
    for (const SafetensorsEntry& entry : file.header.entries)
      if (missing.erase(entry.name) == 0) unused.push_back(describe(entry.name));
    for (const std::string& name : missing)
      problems.add(fmt::format("{}: weight_map has {} for {}: that file has no such tensor",
                               result.path_, describe(file_name), describe(name)));
    std::erase_if(file.header.entries, [&names = names](const SafetensorsEntry& entry) {
      return !names.contains(entry.name);
    });
    if (!unused.empty())
      result.notes_.push_back(fmt::format("{}: ignored {}, which the index does not map to it",
                                          file.mapping.path().string(), name_some(unused)));
  }
  problems.throw_if_any();  // before any tensor is used
  for (OpenFile& file : files) result.add(std::move(file));
  return result;
}

void Safetensors::add(OpenFile file) {
  const std::byte* data = file.mapping.bytes().data() + file.header.data_begin;
  for (SafetensorsEntry& entry : file.header.entries)
    tensors_.emplace(std::move(entry.name), Stored{std::move(entry.dtype), std::move(entry.shape),
                                                   files_.size(), data + entry.begin});
  files_.push_back(std::move(file.mapping));
}

Safetensors::BytePlace Safetensors::place_of(const std::byte* data) const {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const std::span<const std::byte> bytes = files_[i].bytes();
    if (std::less_equal<>()(bytes.data(), data) && std::less<>()(data, bytes.data() + bytes.size()))
      return {i, data - bytes.data()};
  }
  throw Error(ErrorKind::rank, fmt::format("{}: the bytes are in no file of it", path_));
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, stored] : tensors_) names.push_back(name);
  return names;
}

ConstTensorView Safetensors::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw input_error(fmt::format("{}: has no tensor {}", path_, describe(name)));
  const Stored& stored = found->second;
  const auto refuse = [&](const std::string& what) {
    throw input_error(fmt::format("{}: tensor {} has the {}", files_[stored.file].path().string(),
                                  describe(name), what));
  };
  const std::optional<DType> dtype = usable_dtype(stored.dtype);
  if (!dtype) refuse(fmt::format("dtype {}: must be F32, BF16 or F16", stored.dtype));
  const std::optional<Shape> shape = usable_shape(stored.shape);
  if (!shape)
    refuse(
        fmt::format("shape [{}]: must have at most 4 dimensions", fmt::join(stored.shape, ", ")));
  return {stored.data, *shape, *dtype, Place::host, shape->row_elements()};
}

}  // namespace tp
