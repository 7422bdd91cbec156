#include "common/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/json.h"

namespace tp {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as in the format's own reader
constexpr std::size_t kMaxListLength = 64;              // no tensor has more dimensions

struct StoredType {
  std::string_view name;
  std::uint64_t bits;
};
constexpr std::array kStoredTypes{
    StoredType{"BOOL", 8},    StoredType{"F4", 4},      StoredType{"F6_E2M3", 6},
    StoredType{"F6_E3M2", 6}, StoredType{"U8", 8},      StoredType{"I8", 8},
    StoredType{"F8_E5M2", 8}, StoredType{"F8_E4M3", 8}, StoredType{"F8_E8M0", 8},
    StoredType{"I16", 16},    StoredType{"U16", 16},    StoredType{"F16", 16},
    StoredType{"BF16", 16},   StoredType{"I32", 32},    StoredType{"U32", 32},
    StoredType{"F32", 32},    StoredType{"C64", 64},    StoredType{"F64", 64},
    StoredType{"I64", 64},    StoredType{"U64", 64},
};

// Receives the JSON piece by piece and gathers one entry at a time, so that no more of it is held.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using OnEntry = std::function<void(const std::string& name, const nlohmann::json& fields)>;

  HeaderReader(std::string file, OnEntry on_entry)
      : file_(std::move(file)), on_entry_(std::move(on_entry)) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(v); }
  bool binary(binary_t&) override { return false; }  // JSON text has none

  bool start_object(std::size_t) override {
    if (in_entry_) refuse("holds an object where the format has none");
    in_entry_ = std::exchange(in_header_, true);
    fields_ = nlohmann::json::object();
    return true;
  }

  bool key(string_t& key) override {
    (in_entry_ ? field_ : name_) = key;
    if (!in_entry_ && in_metadata() && std::exchange(has_metadata_, true)) refuse("stands twice");
    if (!in_entry_ || in_metadata()) return true;
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      refuse(fmt::format("has the key {}, which the format does not know", describe(key)));
    if (fields_.contains(key)) refuse(fmt::format("has the key {} twice", describe(key)));
    return true;
  }

  bool end_object() override {
    if (in_entry_ && !in_metadata()) on_entry_(name_, fields_);
    in_entry_ = false;
    return true;
  }

  bool start_array(std::size_t) override {
    if (!in_entry_ || in_metadata() || in_list_) refuse("holds a list where the format has none");
    fields_[field_] = nlohmann::json::array();
    in_list_ = true;
    return true;
  }

  bool end_array() override {
    in_list_ = false;
    return true;
  }

  bool parse_error(std::size_t byte,
                   const std::string&,
                   const nlohmann::json::exception&) override {
    throw input_error(fmt::format("{}: byte {} of its header is no valid JSON", file_, byte));
  }

 private:
  // The author's free text. Nothing here depends on it.
  bool in_metadata() const { return name_ == "__metadata__"; }

  bool value(nlohmann::json v) {
    if (!in_entry_) refuse(fmt::format("is {}: must be an object", describe(v)));
    if (in_metadata()) {
      if (!v.is_string()) refuse("holds something else than texts");
    } else if (!in_list_) {
      fields_[field_] = std::move(v);
    } else {
      nlohmann::json& list = fields_[field_];
      if (list.size() == kMaxListLength)
        refuse(fmt::format("has a {} of more than {} numbers", field_, kMaxListLength));
      list.push_back(std::move(v));
    }
    return true;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    throw input_error(fmt::format("{}: in its header, {} {}", file_, describe(name_), what));
  }

  std::string file_;
  OnEntry on_entry_;
  bool in_header_ = false;
  bool in_entry_ = false;
  bool in_list_ = false;
  bool has_metadata_ = false;
  std::string name_;       // the key of the entry
  std::string field_;      // the key inside the entry
  nlohmann::json fields_;  // what has been read of the entry
};

// The bits of a tensor; nothing if their number does not fit into 63 bits. A size of 0 does not
// excuse the others.
std::optional<std::uint64_t> count_bits(const std::vector<std::uint64_t>& shape,
                                        std::uint64_t element_bits) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::uint64_t bits = element_bits;
  bool empty = false;
  for (const std::uint64_t size : shape) {
    empty |= size == 0;
    const std::uint64_t factor = std::max<std::uint64_t>(size, 1);
    if (bits > kMax / factor) return std::nullopt;
    bits *= factor;
  }
  return empty ? 0 : bits;
}

// The list under a key; nothing if there is anything else than whole numbers from 0.
std::optional<std::vector<std::uint64_t>> numbers(const nlohmann::json& fields, const char* key) {
  const auto list = fields.find(key);
  const auto is_whole = [](const nlohmann::json& number) { return number.is_number_unsigned(); };
  if (list == fields.end() || !list->is_array() ||
      !std::all_of(list->begin(), list->end(), is_whole))
    return std::nullopt;
  return list->get<std::vector<std::uint64_t>>();
}

// The entries of one file: checks each of them, then all together. What is wrong becomes a problem.
class EntryList {
 public:
  EntryList(std::string file, std::uint64_t data_bytes, Problems& problems)
      : file_(std::move(file)), data_bytes_(data_bytes), problems_(problems) {}

  void add(const std::string& name, const nlohmann::json& fields) {
    SafetensorsEntry entry;
    entry.name = name;
    const bool placed = read_place(fields, entry);
    const std::optional<std::uint64_t> bytes = read_type_and_shape(fields, entry);
    if (placed && bytes && *bytes != entry.end - entry.begin)
      refuse(name, fields, "data_offsets",
             fmt::format("{} bytes apart, as {} [{}] needs {}", *bytes, entry.dtype,
                         fmt::join(entry.shape, ", "), *bytes));
    all_placed_ &= placed;
    if (placed) entries_.push_back(std::move(entry));
  }

  // The entries, sorted by name.
  std::vector<SafetensorsEntry> finish() {
    if (all_placed_) check_coverage();
    std::sort(entries_.begin(), entries_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < entries_.size(); ++i)
      if (entries_[i - 1].name == entries_[i].name)
        problem(fmt::format("tensor {} stands twice in the header", describe(entries_[i].name)));
    return std::move(entries_);
  }

 private:
  // Returns whether the bytes lie in the file.
  bool read_place(const nlohmann::json& fields, SafetensorsEntry& entry) {
    const auto offsets = numbers(fields, "data_offsets");
    const bool is_pair = offsets && offsets->size() == 2 && (*offsets)[0] <= (*offsets)[1];
    if (!is_pair) {
      refuse(entry.name, fields, "data_offsets", "two whole numbers from 0, the begin and the end");
      return false;
    }
    entry.begin = (*offsets)[0];
    entry.end = (*offsets)[1];
    if (entry.end <= data_bytes_) return true;
    refuse(entry.name, fields, "data_offsets",
           fmt::format("within the {} bytes of data in the file (was it cut off?)", data_bytes_));
    return false;
  }

  // Returns the number of bytes that such a tensor has, or nothing if something is wrong.
  std::optional<std::uint64_t> read_type_and_shape(const nlohmann::json& fields,
                                                   SafetensorsEntry& entry) {
    const auto dtype = fields.find("dtype");
    if (dtype != fields.end() && dtype->is_string()) entry.dtype = dtype->get<std::string>();
    const auto stored = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                     [&](const StoredType& t) { return t.name == entry.dtype; });
    if (stored == kStoredTypes.end())
      refuse(entry.name, fields, "dtype", "a dtype of the format, such as \"F32\" or \"BF16\"");

    const auto shape = numbers(fields, "shape");
    if (!shape) refuse(entry.name, fields, "shape", "a list of whole numbers from 0");
    if (!shape || stored == kStoredTypes.end()) return std::nullopt;

    entry.shape = *shape;
    const std::optional<std::uint64_t> bits = count_bits(*shape, stored->bits);
    if (bits && *bits % 8 == 0) return *bits / 8;
    refuse(entry.name, fields, "shape",
           bits ? fmt::format("a whole number of bytes, at {} bits an element", stored->bits)
                : "smaller: the number of its bits does not fit into 63 bits");
    return std::nullopt;
  }

  // Every byte belongs to exactly one tensor.
  void check_coverage() {
    std::sort(entries_.begin(), entries_.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    const SafetensorsEntry* last = nullptr;  // the one that reaches furthest so far
    std::uint64_t covered = 0;
    for (const SafetensorsEntry& entry : entries_) {
      if (entry.begin == entry.end) continue;  // has no bytes that could be anywhere else
      if (entry.begin < covered)
        problem(fmt::format("tensors {} and {} overlap: both claim bytes {} to {} of the data",
                            describe(last->name), describe(entry.name), entry.begin,
                            std::min(covered, entry.end)));
      if (entry.begin > covered)
        problem(fmt::format("bytes {} to {} of the data, before tensor {}, belong to no tensor",
                            covered, entry.begin, describe(entry.name)));
      if (entry.end > covered) {
        covered = entry.end;
        last = &entry;
      }
    }
    if (covered < data_bytes_)
      problem(fmt::format("bytes {} to {} of the data, its last {}, belong to no tensor", covered,
                          data_bytes_, data_bytes_ - covered));
  }

  void refuse(const std::string& name,
              const nlohmann::json& fields,
              const char* key,
              std::string_view right) {
    const auto value = fields.find(key);
    const std::string state = value == fields.end() ? " is missing" : " = " + describe(*value);
    problem(fmt::format("tensor {}: {}{}: must be {}", describe(name), key, state, right));
  }

  void problem(const std::string& what) { problems_.add(file_ + ": " + what); }

  std::string file_;
  std::uint64_t data_bytes_;
  Problems& problems_;
  std::vector<SafetensorsEntry> entries_;
  bool all_placed_ = true;  // false: entries_ has gaps that the file may not have
};

}  // namespace

SafetensorsHeader read_safetensors_header(const MappedFile& file, Problems& problems) {
  const std::string path = file.path().string();
  constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
  if (file.bytes().size() < kLengthBytes)
    throw input_error(fmt::format("{}: has {} bytes, not even the 8 of the header's length", path,
                                  file.bytes().size()));
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.bytes().data(), kLengthBytes);
  const std::uint64_t left = file.bytes().size() - kLengthBytes;
  if (header_bytes > left)
    throw input_error(fmt::format(
        "{}: its header claims {} bytes, but only {} follow: cut off, or no safetensors file", path,
        header_bytes, left));
  if (header_bytes > kMaxHeaderBytes)
    throw input_error(fmt::format("{}: its header has {} bytes: must be at most {}", path,
                                  header_bytes, kMaxHeaderBytes));
  const std::string_view text = file.text().substr(kLengthBytes, header_bytes);
  if (!text.starts_with('{'))
    throw input_error(fmt::format("{}: its header does not begin with '{{'", path));
  if (const std::size_t zero = text.find('\0');
      zero != text.npos)  // would end the text for the parser
    throw input_error(fmt::format("{}: byte {} of its header is no valid JSON", path, zero + 1));

  EntryList entries(path, left - header_bytes, problems);
  HeaderReader reader(path, [&](const std::string& name, const nlohmann::json& fields) {
    entries.add(name, fields);
  });
  nlohmann::json::sax_parse(text, &reader);
  return {entries.finish(), kLengthBytes + header_bytes};
}

}  // namespace tp
