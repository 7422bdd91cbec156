#include "common/topology/advice.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/topology/sample_texts.h"

using namespace tp;

namespace {

std::vector<std::string> kinds_of(const std::string& sample, std::size_t tp) {
  const Machine machine = sample_machine(sample);
  std::vector<std::string> kinds;
  for (const Warning& warning : warnings_of(machine, plan_groups(machine, tp).groups))
    kinds.push_back(warning.kind);
  return kinds;
}

std::string text_of(const std::string& sample, std::size_t tp, const std::string& kind) {
  const Machine machine = sample_machine(sample);
  for (const Warning& warning : warnings_of(machine, plan_groups(machine, tp).groups))
    if (warning.kind == kind) return warning.text;
  return "";
}

// "2x4 {0,1} {2,3} {4,5} {6,7}" of each offer.
std::vector<std::string> offers_of(const std::string& sample, std::size_t tp) {
  const Machine machine = sample_machine(sample);
  std::vector<std::string> offers;
  for (const StageOffer& offer : stage_offers(machine, plan_groups(machine, tp).groups.at(0)))
    offers.push_back(std::to_string(offer.stages.tp) + "x" + std::to_string(offer.pp) + " " +
                     sets_of(machine, offer.stages.groups));
  return offers;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("nothing to warn of where all is well") {
  CHECK(kinds_of("dgx_h100", 1).empty());
  CHECK(kinds_of("dgx_h100", 2).empty());
  CHECK(kinds_of("dgx_h100", 4).empty());
  CHECK(kinds_of("a6000_pairs", 2).empty());
  CHECK(kinds_of("one_gpu", 1).empty());
}

TEST_CASE("groups that leave NVLink or a socket are named") {
  CHECK(kinds_of("dgx_h100", 8) == Texts{"numa"});
  CHECK(kinds_of("a6000_pairs", 4) == Texts{"leaves_nvlink"});
  CHECK(kinds_of("a6000_pairs", 8) == Texts{"sys", "leaves_nvlink", "numa"});
  CHECK_THAT(text_of("a6000_pairs", 4, "leaves_nvlink"),
             ContainsSubstring("{0,1,2,3} {4,5,6,7}: the group leaves NVLink"));
  CHECK_THAT(text_of("a6000_pairs", 8, "sys"),
             ContainsSubstring("{0,1,2,3,4,5,6,7}: worst link SYS"));
  // Without NVLink there is nothing to leave.
  CHECK(kinds_of("pcie_16", 16) == Texts{"sys", "numa", "peer_access_unknown"});
}

TEST_CASE("no peer access means that traffic is staged") {
  CHECK(kinds_of("workstation", 2) == Texts{"no_peer_access"});
  const std::string text = text_of("workstation", 2, "no_peer_access");
  CHECK_THAT(text, ContainsSubstring("GPU0-GPU1: no peer access, CNS (chipset not supported); "
                                     "traffic is staged through host memory"));
  CHECK(kinds_of("workstation", 1).empty());
  CHECK(kinds_of("dgx1_v100", 4).empty());
  CHECK_THAT(text_of("dgx1_v100", 8, "no_peer_access"),
             ContainsSubstring("GPU0-GPU5, GPU0-GPU6, GPU0-GPU7") &&
                 ContainsSubstring("and 6 more: no peer access, TNS"));
  CHECK(peer_access_in_words(sample_machine("workstation")) ==
        "CNS (chipset not supported) for GPU0-GPU1");
  CHECK(peer_access_in_words(sample_machine("dgx_h100")) ==
        "OK for all of 28 pairs for reading; writing is not known");
  const std::string p2p = " GPU0 GPU1\n GPU0 X OK\n GPU1 OK X\n";
  CHECK(peer_access_in_words(machine_from("GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\n\nLegend:\n" + p2p +
                                          "Legend:\n" + p2p)) == "OK for all of 1 pair");
  const Machine unsure = machine_from(
      "GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\n\nLegend:\n GPU0 GPU1\n GPU0 X U\n GPU1 U X\n");
  const std::vector<Warning> doubts = warnings_of(unsure, plan_groups(unsure, 2).groups);
  REQUIRE(doubts.size() == 1);
  CHECK(doubts[0].kind == "peer_access_unknown");
  CHECK_THAT(doubts[0].text, ContainsSubstring("GPU0-GPU1: nvidia-smi does not know"));
  Machine refused = unsure;  // of the two directions the refusal counts
  refused.p2p_write = {{P2pStatus::ok, P2pStatus::not_supported},
                       {P2pStatus::not_supported, P2pStatus::ok}};
  CHECK(warnings_of(refused, plan_groups(refused, 2).groups).at(0).kind == "no_peer_access");
  CHECK_THAT(peer_access_in_words(sample_machine("pcie_7")), ContainsSubstring("not known"));
  CHECK_THAT(text_of("pcie_7", 7, "peer_access_unknown"),
             ContainsSubstring("peer access of 21 pairs is not known"));
}

TEST_CASE("cards of different models in one group") {
  const std::string two = read_sample("workstation");
  const auto kinds = [&](const std::string& second) {
    const Machine machine = machine_from(two + "\nGPU 0: NVIDIA A\nGPU 1: " + second + "\n");
    Texts found;
    for (const Warning& w : warnings_of(machine, plan_groups(machine, 2).groups))
      found.push_back(w.kind);
    return found;
  };
  CHECK(kinds("NVIDIA A") == Texts{"no_peer_access"});
  CHECK(kinds("NVIDIA B") == Texts{"no_peer_access", "models"});
  const Machine half = machine_from(two + "\nGPU 0: NVIDIA A\n");  // of GPU1 nothing is said
  CHECK(warnings_of(half, plan_groups(half, 2).groups).size() == 1);
}

TEST_CASE("stages lie between the pairs") {
  CHECK(offers_of("a6000_pairs", 4) == Texts{"2x2 {0,1} {2,3}"});
  CHECK(offers_of("a6000_pairs", 8) ==
        Texts{"4x2 {0,1,2,3} {4,5,6,7}", "2x4 {0,1} {2,3} {4,5} {6,7}"});
  CHECK(offers_of("dgx1_v100", 8) ==
        Texts{"4x2 {0,1,2,3} {4,5,6,7}", "2x4 {0,3} {1,2} {4,7} {5,6}"});
  CHECK(offers_of("workstation", 2) == Texts{"1x2 {0} {1}"});
  // Smaller groups that are no better are not offered.
  const Machine flat = machine_from(
      "GPU0 GPU1 GPU2 GPU3\nGPU0 X SYS SYS SYS\nGPU1 SYS X SYS SYS\n"
      "GPU2 SYS SYS X SYS\nGPU3 SYS SYS SYS X\n");
  const std::vector<StageOffer> offers = stage_offers(flat, plan_groups(flat, 4).groups.at(0));
  REQUIRE(offers.size() == 1);
  CHECK(offers[0].stages.tp == 1);
  CHECK(offers[0].pp == 4);
  CHECK(offers_of("dgx_h100", 8).empty());
  CHECK(offers_of("a6000_pairs", 2).empty());
  CHECK(offers_of("one_gpu", 1).empty());
}

TEST_CASE("NVLink is counted in pairs and never claimed for the machine") {
  CHECK(links_in_words(sample_machine("dgx_h100")) == "NVLink joins 28 of 28 pairs: 28 NV18");
  CHECK(links_in_words(sample_machine("a6000_pairs")) ==
        "NVLink joins 4 of 28 pairs: 4 NV4, 8 NODE, 16 SYS");
  CHECK(links_in_words(sample_machine("workstation")) == "NVLink joins 0 of 1 pair: 1 PHB");
  CHECK(links_in_words(sample_machine("one_gpu")) == "one card, no pairs");
}

TEST_CASE("the environment has the physical numbers in rank order") {
  const Machine mesh = sample_machine("dgx1_v100");
  CHECK(environment_of(mesh, plan_groups(mesh, 8).groups[0]) ==
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,3,2,1,5,6,7,4");
  const Machine chosen = mesh.select({3, 1});
  CHECK(environment_of(chosen, plan_groups(chosen, 2).groups[0]) ==
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=3,1");
}
