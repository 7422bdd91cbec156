#include "tests/fuzz/targets.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "common/core/error.h"
#include "common/model/config.h"
#include "common/model/generation_config.h"
#include "common/model/safetensors.h"
#include "common/model/tokenizer.h"
#include "common/topology/advice.h"
#include "common/topology/device_list.h"
#include "common/topology/groups.h"
#include "common/topology/read_machine.h"
#include "tests/checkpoint.h"
#include "tests/fuzz/allocation_limit.h"

namespace tp {

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "fuzz target: %s\n", what.c_str());
  std::abort();
}

// Runs a reader on files of so many bytes, with as much memory for each of them.
void expect_input_error_at_most(std::size_t bytes,
                                std::size_t times,
                                const std::function<void()>& read) {
  const AllocationLimit limit(bytes, times);
  try {
    read();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) fail(e.what());
  } catch (const std::exception& e) {
    fail(std::string("an exception that is no tp::Error: ") + e.what());
  }
}

std::string text_of(std::span<const std::uint8_t> bytes) {
  return {bytes.begin(), bytes.end()};
}

// Every byte of every tensor lies in the files.
void look_at_tensors(const Safetensors& opened) {
  for (const std::string& name : opened.names()) {
    ConstTensorView tensor;
    try {
      tensor = opened.tensor(name);
    } catch (const Error&) {
      continue;  // of no use here
    }
    if (tensor.bytes() == 0) continue;
    const Safetensors::BytePlace place = opened.place_of(tensor.data);
    const auto size = static_cast<std::int64_t>(opened.files()[place.file].bytes().size());
    if (tensor.bytes() > size - place.offset) fail(name + " reaches behind its file");
  }
}

}  // namespace

void read_as_header(std::span<const std::uint8_t> bytes) {
  static const TempFolder folder;
  const auto path = folder.write("model.safetensors", text_of(bytes));
  expect_input_error_at_most(bytes.size(), AllocationLimit::kTimesHeader,
                             [&] { look_at_tensors(Safetensors::open(path)); });
}

void read_as_index(std::span<const std::uint8_t> bytes) {
  static const TempFolder folder;
  static const std::size_t shard_bytes = [] {
    std::size_t size = 0;
    for (const char* name : {"s1", "s2"}) {
      SafetensorsFile shard;
      shard.add("A", "F32", {1}, std::string(4, '\1'));
      if (name[1] == '2') shard.add("B", "BF16", {2}, std::string(4, '\2'));
      folder.write(name, shard.bytes());
      size += shard.bytes().size();
    }
    return size;
  }();
  folder.write("model.safetensors.index.json", text_of(bytes));
  expect_input_error_at_most(bytes.size() + shard_bytes, AllocationLimit::kTimesJson,
                             [&] { look_at_tensors(Safetensors::open(folder.path())); });
}

void read_as_config(std::span<const std::uint8_t> bytes) {
  static const TempFolder folder;
  const auto file = folder.write("config.json", text_of(bytes));
  expect_input_error_at_most(bytes.size(), AllocationLimit::kTimesJson,
                             [&] { ModelConfig::load(folder.path()); });
  expect_input_error_at_most(bytes.size(), AllocationLimit::kTimesJson,
                             [&] { ModelConfig::for_plan(file, {}); });
}

void read_as_generation_config(std::span<const std::uint8_t> bytes) {
  static const TempFolder folder;
  static const std::string config =
      R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "vocab_size": 9,
          "num_hidden_layers": 1, "num_attention_heads": 2})";
  folder.write("config.json", config);
  folder.write("generation_config.json", text_of(bytes));
  expect_input_error_at_most(bytes.size() + config.size(), AllocationLimit::kTimesJson, [&] {
    ModelConfig::load(folder.path());
    GenerationConfig::load(folder.path());
  });
}

void read_as_tokenizer(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kText = "It's 12345 <|im_end|>, caf\u00e9\n\n  \u4f60\U0001f600";
  static const TempFolder folder;
  const auto path = folder.write("tokenizer.json", text_of(bytes));
  expect_input_error_at_most(bytes.size(), AllocationLimit::kTimesJson, [&] {
    const Tokenizer tokenizer = Tokenizer::load(path);
    tokenizer.decode(tokenizer.encode(kText), false);
  });
}

void read_as_topology(std::span<const std::uint8_t> bytes) {
  Machine machine;
  expect_input_error_at_most(bytes.size(), AllocationLimit::kTimesTopology, [&] {
    machine = read_machine({{"text", text_of(bytes), TopologyText::Role::any}});
  });
  // Whatever was accepted can be reasoned about. Large machines take long, and the tests have them.
  if (machine.cards.empty() || machine.size() > 8) return;
  for (std::size_t i = 0; i < machine.size(); ++i) {
    machine.nearest_nics(i);
    for (std::size_t j = 0; j < i; ++j)
      if (machine.link(i, j) != machine.link(j, i))
        fail("a matrix that is not symmetric was accepted");
  }
  for (const std::size_t tp : group_sizes(machine.size())) {
    const GroupPlan plan = plan_groups(machine, tp);
    std::size_t cards = 0;
    for (const Group& group : plan.groups) {
      cards += group.cards.size();
      stage_offers(machine, group);
      environment_of(machine, group);
    }
    if (cards != machine.size()) fail("a partition that has not every card once");
    warnings_of(machine, plan.groups);
  }
  links_in_words(machine);
  peer_access_in_words(machine);
}

void read_as_device_list(std::span<const std::uint8_t> bytes) {
  const PresentCards present{4, {"GPU-7c1e", "GPU-1a2b", "GPU-1a2c", ""}};
  expect_input_error_at_most(bytes.size(), AllocationLimit::kTimesTopology, [&] {
    const DeviceList list = parse_device_list(text_of(bytes), present);
    std::vector<bool> seen(present.count);
    for (const std::size_t card : list.physical) {
      if (seen.at(card)) fail("a card is there twice");
      seen[card] = true;
    }
    if (list.physical.empty()) fail("an empty list was accepted");
  });
}

}  // namespace tp
