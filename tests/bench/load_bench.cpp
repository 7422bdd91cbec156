// Loading a shard beside copying the same bytes with memcpy out of the page cache.
//
// Both map the file anew and copy into fresh memory, as every program that loads must, so both pay
// for the pages of the mapping and of the memory. They take turns, because a busy machine slows down
// whatever runs at the moment; the figures are of the fastest turn of each.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/device/device.h"
#include "common/model/safetensors.h"
#include "common/parallel/shards.h"
#include "tests/checkpoint.h"

namespace tp {

namespace {

constexpr std::int64_t kRows = 2048, kColumns = 5632, kMatrices = 16;  // 352 MiB of bf16

enum class Part { all, rows, columns };

std::string name_of_matrix(std::int64_t i) {
  return "w" + std::to_string(i);
}

// The file, written once for all measurements.
const std::filesystem::path& matrices() {
  static const TempFolder folder;
  static const std::filesystem::path path = [] {
    SafetensorsFile file;
    std::vector<std::uint16_t> words(static_cast<std::size_t>(kRows * kColumns));
    for (std::size_t w = 0; w < words.size(); ++w)
      words[w] = static_cast<std::uint16_t>(0x3c00 + w % 0x300);
    for (std::int64_t i = 0; i < kMatrices; ++i)
      file.add(name_of_matrix(i), "BF16", {kRows, kColumns}, bytes_of(words));
    return folder.write("model.safetensors", file.bytes());
  }();
  return path;
}

// What one of two ranks takes of each matrix.
std::vector<ConstTensorView> shards_of(const Safetensors& file, Part part) {
  std::vector<ConstTensorView> shards;
  for (std::int64_t i = 0; i < kMatrices; ++i) {
    const ConstTensorView matrix = file.tensor(name_of_matrix(i));
    shards.push_back(part == Part::all    ? matrix
                     : part == Part::rows ? matrix.rows_in(shard_range(kRows, 0, 2))
                                          : matrix.columns_in(shard_range(kColumns, 0, 2)));
  }
  return shards;
}

// One memcpy for rows, one per row for columns.
void copy(const ConstTensorView& shard, std::byte* to) {
  const auto size = static_cast<std::int64_t>(size_of(shard.dtype));
  const std::int64_t runs = shard.contiguous() ? 1 : shard.rows();
  const std::int64_t bytes = shard.bytes() / runs;
  for (std::int64_t i = 0; i < runs; ++i)
    std::memcpy(to + i * bytes, shard.data + i * shard.row_stride * size,
                static_cast<std::size_t>(bytes));
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Memory that no one has touched yet.
class FreshMemory {
 public:
  explicit FreshMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~FreshMemory() { ::munmap(data_, bytes_); }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// With `touched` the memory is there before the clock starts.
double copy_seconds(Part part, bool touched) {
  const Safetensors file = Safetensors::open(matrices());
  const FreshMemory memory(static_cast<std::size_t>(kRows * kColumns * kMatrices * 2));
  if (touched)
    std::memset(memory.data(), 1, static_cast<std::size_t>(kRows * kColumns * kMatrices * 2));
  std::byte* to = memory.data();
  const auto start = std::chrono::steady_clock::now();
  for (const ConstTensorView& shard : shards_of(file, part)) {
    copy(shard, to);
    to += shard.bytes();
  }
  return seconds_since(start);
}

double load_seconds(Part part, std::optional<DType> store_as) {
  const Safetensors file = Safetensors::open(matrices());
  const std::unique_ptr<Device> device = make_cpu_device();
  std::vector<Tensor> loaded;
  const auto start = std::chrono::steady_clock::now();
  for (const ConstTensorView& shard : shards_of(file, part))
    loaded.push_back(device->upload(shard, store_as, "weights"));
  return seconds_since(start);
}

void load_beside_memcpy(benchmark::State& state, Part part, std::optional<DType> store_as) {
  constexpr double kLong = std::numeric_limits<double>::max();
  double fastest_load = kLong, fastest_copy = kLong, fastest_bare_copy = kLong;
  for (auto _ : state) {
    fastest_copy = std::min(fastest_copy, copy_seconds(part, false));
    fastest_bare_copy = std::min(fastest_bare_copy, copy_seconds(part, true));
    const double seconds = load_seconds(part, store_as);
    fastest_load = std::min(fastest_load, seconds);
    state.SetIterationTime(seconds);
  }
  const double bytes =
      static_cast<double>(kRows * kColumns * kMatrices * 2) / (part == Part::all ? 1 : 2);
  state.counters["load_GB/s"] = bytes / fastest_load / 1e9;
  state.counters["memcpy_GB/s"] = bytes / fastest_copy / 1e9;
  state.counters["times_memcpy"] = fastest_load / fastest_copy;
  state.counters["times_memcpy_to_touched"] = fastest_load / fastest_bare_copy;
}

void settings(benchmark::internal::Benchmark* bench) {
  bench->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(12);
}
BENCHMARK_CAPTURE(load_beside_memcpy, all, Part::all, std::nullopt)->Apply(settings);
BENCHMARK_CAPTURE(load_beside_memcpy, half_of_rows, Part::rows, std::nullopt)->Apply(settings);
BENCHMARK_CAPTURE(load_beside_memcpy, half_of_columns, Part::columns, std::nullopt)
    ->Apply(settings);
BENCHMARK_CAPTURE(load_beside_memcpy, half_of_rows_widened_to_f32, Part::rows, DType::f32)
    ->Apply(settings);

}  // namespace

}  // namespace tp
