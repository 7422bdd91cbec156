// The integers of a step on the GPU: uploaded once, found again by address and content, in the same
// places for steps of the same sizes.
#include "common/device/cuda/step_arrays.h"

#include <cstring>
#include <functional>
#include <numeric>

#include "common/core/error.h"
#include "common/device/cuda/check.h"
#include "common/device/cuda/cuda_device.h"
#include "tests/catch.h"

using namespace tp;
using namespace tp::cuda;

namespace {

using Integers = std::vector<std::int32_t>;

Integers counted(std::int64_t count, std::int32_t first) {
  Integers values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

class Arrays {
 public:
  Arrays()
      : device_(make_cuda_device({})),
        arrays_(
            device_->stream(),
            [this](std::int64_t integers) {
              ++allocations;
              return device_->allocate({integers}, DType::i32, "arrays");
            },
            [](cudaEvent_t event) { check(cudaEventSynchronize(event), "cudaEventSynchronize"); }) {
  }

  StepArrays* operator->() { return &arrays_; }

  // What is there when the stream is done with all before.
  template <class T>
  std::vector<T> read(const T* data, std::size_t count) {
    static_assert(sizeof(T) % sizeof(std::int32_t) == 0);
    const auto integers = static_cast<std::int64_t>(count * sizeof(T) / sizeof(std::int32_t));
    std::vector<T> values(count);
    const Tensor host = device_->download(view(data, integers));
    if (count > 0) std::memcpy(values.data(), host.view().data, count * sizeof(T));
    return values;
  }
  // A copy that is made in the order of the stream, to be read later.
  Tensor keep(const std::int32_t* data, std::size_t count) {
    const auto integers = static_cast<std::int64_t>(count);
    Tensor copy = device_->allocate({1, integers}, DType::i32, "kept");
    device_->copy(view(data, integers), copy);
    return copy;
  }
  // Without the numbers in the message: they are many.
  bool kept_is(const Tensor& kept, const Integers& wanted) {
    return wanted == read(reinterpret_cast<const std::int32_t*>(kept.view().data),
                          static_cast<std::size_t>(kept.shape().elements()));
  }

  int allocations = 0;

 private:
  static ConstTensorView view(const void* data, std::int64_t integers) {
    return {static_cast<const std::byte*>(data), {1, integers}, DType::i32, Place::cuda, integers};
  }
  std::unique_ptr<CudaDevice> device_;
  StepArrays arrays_;
};

// A step with two sequences of one token and two of several, one of them of two tiles.
struct Step {
  Integers ids = counted(70, 100), positions = counted(70, 200), slots = counted(70, 300),
           logit_rows{0, 1, 67, 69};
  Integers table_a{9, 4}, table_b{7}, table_c{3, 2, 1, 0, 5}, table_d{8, 6};
  std::vector<SequenceRows> sequences{
      {{0, 1}, 20, table_a}, {{1, 2}, 3, table_b}, {{2, 68}, 0, table_c}, {{68, 70}, 17, table_d}};
  BatchView batch() const { return {positions, slots, sequences}; }
  void begin(Arrays& arrays) { arrays->begin_step(batch(), ids, logit_rows); }
};

void require_batch(Arrays& arrays, const DeviceBatch& found) {
  REQUIRE(found.num_decode == 2);
  REQUIRE(found.longest_decode_tokens == 21);
  REQUIRE(found.num_tiles == 3);
  const Integers tables = arrays.read(found.decode.block_tables, 10);
  REQUIRE(tables == Integers{9, 4, 7, 3, 2, 1, 0, 5, 8, 6});
  REQUIRE(found.prefill.block_tables == found.decode.block_tables);
  const auto decode = arrays.read(found.decode.sequences, 2);
  const auto prefill = arrays.read(found.prefill.sequences, 2);
  const auto is = [](const DeviceSequence& s, int row, int rows, int position, int table) {
    return s.row == row && s.rows == rows && s.first_position == position && s.table_begin == table;
  };
  REQUIRE(is(decode[0], 0, 1, 20, 0));
  REQUIRE(is(decode[1], 1, 1, 3, 2));
  REQUIRE(is(prefill[0], 2, 66, 0, 3));
  REQUIRE(is(prefill[1], 68, 2, 17, 8));
  const auto tiles = arrays.read(found.tiles, 3);
  REQUIRE((tiles[0].sequence == 0 && tiles[0].first_row == 0));
  REQUIRE((tiles[1].sequence == 0 && tiles[1].first_row == kPrefillTileRows));
  REQUIRE((tiles[2].sequence == 1 && tiles[2].first_row == 0));
}

}  // namespace

TEST_CASE("the arrays of a step are uploaded once and found again") {
  Arrays arrays;
  Step step;
  step.begin(arrays);
  REQUIRE(arrays.allocations == 1);
  for (int layer = 0; layer < 3; ++layer) {
    for (const Integers* array : {&step.ids, &step.positions, &step.slots, &step.logit_rows})
      REQUIRE(arrays.read(arrays->find(*array), array->size()) == *array);
    require_batch(arrays, arrays->find(step.batch()));
  }
  REQUIRE(arrays.allocations == 1);  // none for single operations
  REQUIRE(arrays->find(step.ids) == arrays->find(step.ids));
}

TEST_CASE("arrays of a step that were changed are uploaded anew") {
  Arrays arrays;
  Step step;
  step.begin(arrays);
  const std::int32_t* const before = arrays->find(step.ids);
  step.ids[69] = -7;
  REQUIRE(arrays->find(step.ids) != before);
  REQUIRE(arrays.read(arrays->find(step.ids), 70) == step.ids);
  // A part of an array, or another array with the same content, is not the array.
  const std::span<const std::int32_t> part(step.slots.data(), 69);
  REQUIRE(arrays.read(arrays->find(part), 69) == counted(69, 300));
  const Integers copy = step.positions;
  REQUIRE(arrays->find(copy) != arrays->find(step.positions));
  REQUIRE(arrays.read(arrays->find(copy), 70) == copy);
  REQUIRE(arrays.read(arrays->find(Integers{}), 0).empty());

  const DeviceBatch known = arrays->find(step.batch());
  const auto is_new = [&](const DeviceBatch& found) {
    return found.decode.sequences != known.decode.sequences;
  };
  REQUIRE_FALSE(is_new(arrays->find(step.batch())));
  step.table_c[4] = 11;  // the block tables lie outside of the sequences
  REQUIRE(is_new(arrays->find(step.batch())));
  REQUIRE(arrays.read(arrays->find(step.batch()).prefill.block_tables, 10)[7] == 11);
  step.table_c[4] = 5;
  require_batch(arrays, arrays->find(step.batch()));
  ++step.sequences[1].first_position;
  REQUIRE(is_new(arrays->find(step.batch())));
  REQUIRE(arrays.read(arrays->find(step.batch()).decode.sequences, 2)[1].first_position == 4);
  --step.sequences[1].first_position;
  step.sequences.pop_back();
  REQUIRE(is_new(arrays->find(step.batch())));
  REQUIRE(arrays->find(step.batch()).num_tiles == 2);
}

TEST_CASE("without a step all arrays are uploaded where they are needed") {
  Arrays arrays;
  Step step;
  REQUIRE(arrays.read(arrays->find(step.ids), 70) == step.ids);
  require_batch(arrays, arrays->find(step.batch()));
  const DeviceBatch nothing = arrays->find(BatchView{});
  REQUIRE((nothing.num_decode == 0 && nothing.num_tiles == 0));
}

TEST_CASE("steps of the same sizes have their arrays in the same places") {
  Arrays arrays;
  // Decode steps of two sequences, whose block tables grow.
  Integers ids{1, 2}, positions{15, 31}, slots{15, 31}, logit_rows{0, 1};
  Integers table_a{0}, table_b{1, 2};
  std::vector<SequenceRows> sequences{{{0, 1}, 15, table_a}, {{1, 2}, 31, table_b}};
  const auto begin = [&] { arrays->begin_step({positions, slots, sequences}, ids, logit_rows); };
  arrays->reserve(StepArrays::integers_of(2, 2, 2, 8));
  begin();
  const BatchView batch{positions, slots, sequences};
  const DeviceBatch first = arrays->find(batch);
  const std::int32_t* const first_ids = arrays->find(ids);
  const std::int32_t* const first_logit_rows = arrays->find(logit_rows);
  ids = {3, 4}, positions = {16, 32}, slots = {64, 80};
  table_a = {0, 4}, table_b = {1, 2, 5, 6};
  sequences = {{{0, 1}, 16, table_a}, {{1, 2}, 32, table_b}};
  begin();
  const DeviceBatch second = arrays->find(BatchView{positions, slots, sequences});
  REQUIRE(second.decode.sequences == first.decode.sequences);
  REQUIRE(second.decode.block_tables == first.decode.block_tables);
  REQUIRE(arrays->find(ids) == first_ids);
  REQUIRE(arrays->find(logit_rows) == first_logit_rows);
  REQUIRE(arrays.read(first_ids, 2) == Integers{3, 4});
  REQUIRE(arrays.read(second.decode.block_tables, 6) == Integers{0, 4, 1, 2, 5, 6});
}

TEST_CASE("the room for the largest step suffices for all steps within the limits") {
  for (const std::int64_t rows : {1, 3, 64, 65, 200}) {
    Arrays arrays;
    constexpr std::int64_t kBlocks = 5;
    arrays->reserve(StepArrays::integers_of(rows, rows, rows, kBlocks));
    REQUIRE(arrays.allocations == 1);
    const Integers array = counted(rows, 1), table = counted(kBlocks, 1);
    for (std::int64_t sequences = 1; sequences <= rows; ++sequences) {
      std::vector<SequenceRows> cut;
      for (std::int64_t i = 0; i < sequences; ++i)
        cut.push_back({{rows * i / sequences, rows * (i + 1) / sequences}, 0, table});
      arrays->begin_step({array, array, cut}, array, array);
    }
    REQUIRE(arrays.allocations == 1);
  }
}

TEST_CASE("an array that is not the step's is good for its operation though the ring goes round") {
  Arrays arrays;
  std::vector<Tensor> kept;
  // 20 times 40,000 integers: three times round a ring of 2^18.
  for (std::int32_t i = 0; i < 20; ++i) {
    const Integers array = counted(40'000 + i, 1000 * i);
    kept.push_back(arrays.keep(arrays->find(array), array.size()));
  }
  REQUIRE(arrays.allocations == 1);
  for (std::int32_t i = 0; i < 20; ++i)
    REQUIRE(arrays.kept_is(kept[static_cast<std::size_t>(i)], counted(40'000 + i, 1000 * i)));
  // One that is larger than the ring, and after it small ones.
  const Integers large = counted(300'000, 5), small = counted(3, 6);
  const Tensor kept_large = arrays.keep(arrays->find(large), large.size());
  const Tensor kept_small = arrays.keep(arrays->find(small), small.size());
  REQUIRE(arrays.kept_is(kept_large, large));
  REQUIRE(arrays.kept_is(kept_small, small));
}

TEST_CASE("steps follow each other without waiting for the GPU") {
  Arrays arrays;
  std::vector<Tensor> kept;
  for (std::int32_t i = 0; i < 10; ++i) {
    const Integers ids = counted(5 + 20 * i, i);  // larger ones need new memory
    arrays->begin_step({}, ids, {});
    kept.push_back(arrays.keep(arrays->find(ids), ids.size()));
  }
  for (std::int32_t i = 0; i < 10; ++i)
    REQUIRE(arrays.kept_is(kept[static_cast<std::size_t>(i)], counted(5 + 20 * i, i)));
}

TEST_CASE("a captured step has only its own arrays, and they stay where they are") {
  Arrays arrays;
  Step step;
  step.begin(arrays);
  arrays->capture(true);
  REQUIRE(arrays.read(arrays->find(step.ids), 70) == step.ids);
  require_batch(arrays, arrays->find(step.batch()));
  const auto refuses = [](const std::function<void()>& call, const std::string& words) {
    try {
      call();
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::rank);
      CHECK_THAT(e.what(), ContainsSubstring(words));
    }
  };
  const std::string foreign =
      "a step is captured that uses integers which are not the step's own; "
      "give them to begin_step";
  const Integers copy = step.ids;
  refuses([&] { arrays->find(copy); }, foreign);
  step.table_a[0] = 12;
  refuses([&] { arrays->find(step.batch()); }, foreign);
  arrays->capture(false);
  REQUIRE(arrays.read(arrays->find(copy), 70) == copy);

  const Integers many = counted(1000, 0);
  refuses([&] { arrays->begin_step({}, many, {}); },
          "the arrays of a step need 1000 integers, but ");
  refuses([&] { arrays->begin_step({}, many, {}); }, "reserve more before");
  step.begin(arrays);  // this one fits
  REQUIRE(arrays.read(arrays->find(step.ids), 70) == step.ids);
}
