// On which GPUs ranks run and how they are connected, or why they do not.
#include "common/comm/cuda/gpu_choice.h"

#include <fstream>

#include "common/comm/cuda/nccl_variables.h"
#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace tp;
using namespace tp::cuda;

namespace {

Options asked(const std::string& device, const std::string& comm, std::int64_t tp) {
  Options options;
  options.device = device;
  options.comm = comm;
  options.tp = tp;
  return options;
}

// A machine with some GPUs that work.
Circumstances machine(std::size_t gpus) {
  Circumstances here;
  for (std::size_t i = 0; i < gpus; ++i)
    here.visible.gpus.push_back({"NVIDIA H200", "0000:0" + std::to_string(i) + ":00.0"});
  here.visible.present = {4, {"GPU-7c1e-0", "GPU-1a2b-1", "GPU-1a2c-2", "GPU-ffff-3"}};
  if (gpus == 0) here.visible.why_none = "no CUDA-capable device is detected";
  here.has_nccl = true;
  here.try_peers = [](const std::vector<int>&) { return PeerFindings{}; };
  return here;
}

struct Refusal {
  ErrorKind kind;
  std::string text;
};
Refusal refusal(const Options& options, const Circumstances& here) {
  try {
    choose_gpus(options, here);
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  FAIL("accepted");
  return {};
}

// The refusal of a list of visible GPUs of which CUDA shows so many.
Refusal refused_list(const std::string& list, std::size_t shown, std::int64_t tp) {
  Circumstances here = machine(shown);
  here.visible.visible_devices = list;
  return refusal(asked("cuda", "nccl", tp), here);
}

}  // namespace

TEST_CASE("ranks go around the GPUs") {
  CHECK(gpu_of_rank(3, 8) == 3);
  CHECK(gpu_of_rank(0, 2) == 0);
  CHECK(gpu_of_rank(1, 2) == 1);
  CHECK(gpu_of_rank(2, 2) == 0);
  CHECK(gpu_of_rank(7, 1) == 0);
}

TEST_CASE("without being asked a program takes a real GPU and no emulated one") {
  Circumstances here = machine(2);
  CHECK(wants_gpus(asked("auto", "auto", 2), here.visible));
  CHECK_FALSE(wants_gpus(asked("auto", "threads", 2), here.visible));
  CHECK_FALSE(wants_gpus(asked("cpu", "auto", 2), here.visible));
  here.visible.emulated = true;
  CHECK_FALSE(wants_gpus(asked("auto", "auto", 2), here.visible));
  CHECK(wants_gpus(asked("cuda", "auto", 2), here.visible));
  CHECK(wants_gpus(asked("auto", "peer", 2), here.visible));
  CHECK_FALSE(wants_gpus(asked("auto", "auto", 2), machine(0).visible));
  CHECK(wants_gpus(asked("cuda", "auto", 2), machine(0).visible));
}

TEST_CASE("auto takes NCCL when each of several ranks has a GPU") {
  GpuChoice choice = choose_gpus(asked("cuda", "auto", 2), machine(4));
  CHECK(choice.comm == "nccl");
  CHECK(choice.text == "cuda (NVIDIA H200), 2 ranks on 2 GPUs by NCCL");
  CHECK(choice.warning.empty());
  choice = choose_gpus(asked("cuda", "auto", 4), machine(1));
  CHECK(choice.comm == "peer");
  CHECK(choice.text == "cuda (NVIDIA H200), 4 ranks on 1 GPU by peer copies");
  choice = choose_gpus(asked("cuda", "auto", 8), machine(2));
  CHECK(choice.text == "cuda (NVIDIA H200), 8 ranks on 2 GPUs by peer copies");
  choice = choose_gpus(asked("cuda", "auto", 1), machine(2));
  CHECK(choice.comm == "peer");
  CHECK(choice.text == "cuda (NVIDIA H200), 1 rank on 1 GPU");
  Circumstances here = machine(2);
  here.has_nccl = false;
  CHECK(choose_gpus(asked("cuda", "auto", 2), here).comm == "peer");
  CHECK(choose_gpus(asked("cuda", "peer", 2), machine(2)).comm == "peer");
  here = machine(8);
  here.visible.emulated = true;
  CHECK(choose_gpus(asked("cuda", "nccl", 2), here).text ==
        "cuda (emulated, no real GPU), 2 ranks on 2 GPUs by NCCL");
}

TEST_CASE("without access to each other's memory GPUs copy through the host") {
  Circumstances here = machine(2);
  here.try_peers = [](const std::vector<int>&) { return PeerFindings{{{0, 1}, {1, 0}}, {}}; };
  const GpuChoice choice = choose_gpus(asked("cuda", "peer", 2), here);
  CHECK(choice.comm == "peer-staged");
  CHECK_THAT(choice.text, ContainsSubstring("through the host, because GPU 1 cannot read"));
  CHECK(choose_gpus(asked("cuda", "auto", 2), here).comm == "nccl");  // which has ways of its own
  CHECK(choose_gpus(asked("cuda", "auto", 4), here).comm == "peer-staged");
}

TEST_CASE("wrong data between GPUs is avoided by auto and refused otherwise") {
  Circumstances here = machine(2);
  const std::string wrong =
      "from GPU 0 to GPU 1 by a copy: element 1000 is 1001, but 1000 was sent";
  here.try_peers = [&](const std::vector<int>& gpus) {
    CHECK(gpus == std::vector<int>{0, 1});
    return PeerFindings{{}, {wrong}};
  };
  for (const std::int64_t tp : {2, 4}) {
    const GpuChoice choice = choose_gpus(asked("cuda", "auto", tp), here);
    CHECK(choice.comm == "peer-staged");
    CHECK_THAT(choice.text, ContainsSubstring("through the host") && ContainsSubstring(wrong));
  }
  for (const std::string comm : {"peer", "nccl"}) {
    const Refusal refused = refusal(asked("cuda", comm, 2), here);
    CHECK(refused.kind == ErrorKind::rank);
    CHECK_THAT(refused.text, ContainsSubstring("--comm " + comm) && ContainsSubstring(wrong) &&
                                 ContainsSubstring("IOMMU") && ContainsSubstring("ACS") &&
                                 ContainsSubstring("NCCL_P2P_DISABLE=1"));
  }
  here.nccl_without_peer_access = true;
  CHECK(choose_gpus(asked("cuda", "nccl", 2), here).comm == "nccl");
}

TEST_CASE("ranks on one GPU have no way between GPUs to be tried") {
  Circumstances here = machine(1);
  here.try_peers = [](const std::vector<int>&) -> PeerFindings {
    throw std::runtime_error("tried");
  };
  CHECK(choose_gpus(asked("cuda", "peer", 8), here).comm == "peer");
}

TEST_CASE("a program without a GPU says so") {
  Circumstances here = machine(0);
  Refusal refused = refusal(asked("cuda", "auto", 2), here);
  CHECK(refused.kind == ErrorKind::device);
  CHECK_THAT(refused.text, ContainsSubstring("--device cuda: no GPU visible") &&
                               ContainsSubstring("CUDA_VISIBLE_DEVICES is not set") &&
                               ContainsSubstring("--device cpu"));
  refused = refusal(asked("auto", "peer", 2), here);
  CHECK(refused.kind == ErrorKind::device);
  CHECK_THAT(refused.text, ContainsSubstring("--comm peer: no GPU visible"));
  for (const char* list : {"", " ", "-1", "7"}) {
    refused = refused_list(list, 0, 2);
    INFO(list);
    CHECK(refused.kind == ErrorKind::device);
    CHECK_THAT(refused.text, ContainsSubstring("no GPU visible"));
  }
}

TEST_CASE("too few GPUs for NCCL are counted") {
  Refusal refused = refused_list("1", 1, 2);
  CHECK(refused.kind == ErrorKind::input);
  CHECK_THAT(
      refused.text,
      ContainsSubstring("--comm nccl: 2 ranks need 2 GPUs, 1 visible (CUDA_VISIBLE_DEVICES=1)"));
  CHECK_THAT(refused_list("0,3,-1,1", 2, 4).text,
             ContainsSubstring("4 ranks need 4 GPUs, 2 visible"));
  CHECK_THAT(refusal(asked("cuda", "nccl", 5), machine(4)).text,
             ContainsSubstring("5 ranks need 5 GPUs, 4 visible (CUDA_VISIBLE_DEVICES is not set)"));
}

TEST_CASE("a list of GPUs that cannot be meant is refused") {
  const std::vector<std::pair<std::string, std::string>> lists = {
      {"0,0", "names GPU 0 twice"},
      {"MIG-aaaa,MIG-bbbb", "MIG-aaaa: is a MIG slice"},
      {"a", "neither a number nor a UUID"},
      {"0,,1", "an entry is empty"},
      {"GPU-1a2,0", "have a UUID that begins so"}};
  for (const std::size_t shown : {0u, 1u, 2u})  // whatever CUDA makes of it
    for (const auto& [list, words] : lists) {
      const Refusal refused = refused_list(list, shown, 2);
      INFO(list);
      CHECK(refused.kind == ErrorKind::input);
      CHECK_THAT(refused.text, ContainsSubstring(words));
    }
}

TEST_CASE("a list of GPUs that CUDA understands is taken as it is") {
  for (const char* list : {"2,3", "3,1", "0, 1", "GPU-7c1e,GPU-1a2b"}) {
    Circumstances here = machine(2);
    here.visible.visible_devices = list;
    INFO(list);
    CHECK(choose_gpus(asked("cuda", "nccl", 2), here).comm == "nccl");
    here.visible.present = {};  // the driver does not tell which cards there are
    CHECK(choose_gpus(asked("cuda", "nccl", 2), here).comm == "nccl");
  }
  Circumstances slice = machine(1);
  slice.visible.visible_devices = "MIG-aaaa";
  CHECK(choose_gpus(asked("cuda", "peer", 2), slice).comm == "peer");
  slice.visible.present = {};
  slice.visible.visible_devices = "0,0";
  CHECK_THAT(refusal(asked("cuda", "peer", 2), slice).text, ContainsSubstring("names GPU 0 twice"));
}

TEST_CASE("what does not go together is refused") {
  CHECK(refusal(asked("cuda", "threads", 2), machine(2)).kind == ErrorKind::input);
  Circumstances here = machine(2);
  here.has_nccl = false;
  const Refusal refused = refusal(asked("cuda", "nccl", 2), here);
  CHECK(refused.kind == ErrorKind::device);
  CHECK_THAT(refused.text, ContainsSubstring("built without NCCL"));
  CHECK_THAT(refusal(asked("cuda", "peer", 65), machine(2)).text, ContainsSubstring("--tp 65"));
}

TEST_CASE("GPUs of different models bring a warning unless their order is fixed") {
  Circumstances here = machine(2);
  here.visible.gpus[1].name = "NVIDIA A100";
  const GpuChoice choice = choose_gpus(asked("cuda", "auto", 2), here);
  CHECK_THAT(choice.warning, ContainsSubstring("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  CHECK(choice.text == "cuda (NVIDIA A100, NVIDIA H200), 2 ranks on 2 GPUs by NCCL");
  here.visible.device_order = "PCI_BUS_ID";
  CHECK(choose_gpus(asked("cuda", "auto", 2), here).warning.empty());
}

TEST_CASE("cards are read from the driver's folder") {
  const TempFolder folder;
  const auto card = [&](const std::string& bus, const std::string& uuid) {
    std::filesystem::create_directories(folder.path() / bus);
    std::ofstream(folder.path() / bus / "information")
        << "Model: \t\t NVIDIA H200\nGPU UUID: \t " << uuid << "\nBus Type: \t PCIe\n";
  };
  CHECK(cards_in(folder.path() / "none").count == 0);
  card("0000:b0:00.0", "GPU-b");
  card("0000:1a:00.0", "GPU-a");
  PresentCards cards = cards_in(folder.path());
  CHECK(cards.count == 2);
  CHECK(cards.uuids == std::vector<std::string>{"GPU-a", "GPU-b"});
  card("0000:c0:00.0", "GPU-????????");  // how a driver without rights to ask says it
  cards = cards_in(folder.path());
  CHECK(cards.count == 3);
}

TEST_CASE("NCCL's variables are explained and strangers named") {
  const std::string text = describe_nccl_environment(
      {{"NCCL_TIMEOUT", "1800"}, {"NCCL_DEBUG", "INFO"}, {"NCCL_BUFSIZE", "1"}, {"HOME", "/"}});
  CHECK_THAT(text, ContainsSubstring("NCCL_TIMEOUT=1800\n      NCCL does not read it") &&
                       ContainsSubstring("--timeout-s"));
  CHECK_THAT(text, ContainsSubstring("NCCL_DEBUG=INFO\n      what is printed"));
  CHECK_THAT(text, ContainsSubstring("NCCL_BUFSIZE=1\n      not known to this list"));
  CHECK(text.find("HOME") == std::string::npos);
  for (const char* name : {"NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL",
                           "NCCL_SOCKET_IFNAME", "NCCL_BUFFSIZE"})
    CHECK_THAT(text, ContainsSubstring(name));
  CHECK_THAT(describe_nccl_environment({}), ContainsSubstring("that are set:\n  none\n"));
  const auto variables = nccl_variables();
  CHECK(std::is_sorted(variables.begin(), variables.end(),
                       [](const auto& a, const auto& b) { return a.name < b.name; }));
}
