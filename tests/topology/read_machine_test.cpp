#include "common/topology/read_machine.h"

#include <algorithm>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/topology/sample_texts.h"

using namespace tp;

namespace {

using Role = TopologyText::Role;

std::string refusal(const std::vector<TopologyText>& texts) {
  try {
    read_machine(texts);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  FAIL("accepted");
  return "";
}

std::string refusal(const std::string& text) {
  return refusal({{"file", text, Role::any}});
}

// A readable stand-in for tabs.
std::string tabs(std::string text) {
  std::replace(text.begin(), text.end(), '|', '\t');
  return text;
}

const std::string kTwo =
    tabs("|GPU0|GPU1|CPU Affinity|NUMA Affinity\nGPU0| X |PHB|0-31|0\nGPU1|PHB| X |0-31|0\n");
const std::string kTwoP2p = tabs(" |GPU0|GPU1|\n GPU0|X|OK|\n GPU1|OK|X|\n");

bool same_places(const Machine& a, const Machine& b) {
  return std::equal(a.cards.begin(), a.cards.end(), b.cards.begin(), b.cards.end(),
                    [](const Card& x, const Card& y) { return x.place() == y.place(); });
}

bool same_links(const Machine& a, const Machine& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a.size(); ++j)
      if (i != j && a.link(i, j) != b.link(i, j)) return false;
  return a.size() == b.size();
}

}  // namespace

TEST_CASE("a machine with NICs, two NUMA nodes and a heading that only looks like a GPU") {
  const Machine machine = sample_machine("dgx_h100");
  REQUIRE(machine.size() == 8);
  REQUIRE(machine.nics.size() == 12);
  CHECK(machine.places() == 2);
  CHECK(machine.nics[11].column == "NIC11");
  CHECK(machine.nics[11].device == "mlx5_11");
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(machine.cards[i].number == static_cast<int>(i));
    CHECK(machine.cards[i].numa == (i < 4 ? "0" : "1"));
    CHECK(machine.cards[i].cpus == (i < 4 ? "0-55,112-167" : "56-111,168-223"));
    for (std::size_t j = 0; j < 8; ++j)
      if (i != j) CHECK(machine.link(i, j) == Link::nvlink(18));
  }
  const std::size_t nearest[] = {0, 3, 4, 5, 6, 9, 10, 11};
  for (std::size_t i = 0; i < 8; ++i)
    CHECK(machine.nearest_nics(i) == std::vector<std::size_t>{nearest[i]});
  CHECK(machine.p2p(0, 7) == P2pStatus::ok);
  CHECK(machine.p2p_write.empty());
}

TEST_CASE("peer access is taken with both directions, for reading and writing") {
  const Machine machine = sample_machine("workstation");
  CHECK(machine.p2p(0, 1) == P2pStatus::chipset_not_supported);
  CHECK(machine.link(0, 1) == Link::phb());
  CHECK_FALSE(machine_from(kTwo).p2p(0, 1));

  const std::string one_way = with(kTwoP2p, "OK", "GNS");
  const Machine two =
      read_machine({{"a", kTwo}, {"r", kTwoP2p, Role::p2p_read}, {"w", one_way, Role::p2p_write}});
  CHECK(two.p2p_read[0][1] == P2pStatus::ok);
  CHECK(two.p2p_write[0][1] == P2pStatus::gpu_not_supported);
  CHECK(two.p2p_write[1][0] == P2pStatus::ok);
  CHECK(two.p2p(1, 0) == P2pStatus::gpu_not_supported);
  for (const char* word : {"CNS", "GNS", "TNS", "DR", "NS", "U"})
    CHECK(machine_from(kTwo + with(kTwoP2p, "OK", word)).p2p(0, 1) == parse_p2p_status(word));
}

TEST_CASE("the first of two unnamed P2P tables is for reading, a command above it says which") {
  const std::string refused = with(kTwoP2p, "OK", "TNS");
  CHECK(machine_from(kTwo + kTwoP2p + "\n" + refused).p2p_write[0][1] ==
        P2pStatus::topology_not_supported);
  const Machine named = machine_from("$ nvidia-smi topo -p2p w\n" + refused +
                                     "\n$ nvidia-smi topo -p2p r\n" + kTwoP2p + kTwo);
  CHECK(named.p2p_write[0][1] == P2pStatus::topology_not_supported);
  CHECK(named.p2p_read[0][1] == P2pStatus::ok);
  // Tables of atomics and of NVLink look the same and say something else.
  CHECK(machine_from(kTwo + "$ nvidia-smi topo -p2p a\n" + refused + "$ nvidia-smi topo -p2p r\n" +
                     kTwoP2p)
            .p2p(0, 1) == P2pStatus::ok);
  CHECK_THAT(refusal(kTwo + kTwoP2p + "\n" + kTwoP2p + "\n" + kTwoP2p),
             ContainsSubstring("file:12:3: one more table of P2P status"));
}

TEST_CASE("the same table in other clothes") {
  const Machine plain = sample_machine("a6000_pairs");
  CHECK(same_links(sample_machine("a6000_terminal"), plain));  // blanks, colours, CR LF
  CHECK(sample_machine("a6000_terminal").cards[5].numa == "1");
  CHECK(sample_machine("a6000_terminal").cards[5].cpus == "32-63,96-127");
  CHECK(same_links(sample_machine("dgx_h100_bom"), sample_machine("dgx_h100")));
  CHECK(sample_machine("dgx_h100_bom").nics.size() == 12);

  CHECK(machine_from("some words\n\n" + kTwo).size() == 2);
  CHECK(machine_from(kTwo.substr(1)).size() == 2);                    // the first tab is lost
  CHECK(machine_from(with(kTwo, "\nGPU1", "\n\nGPU1")).size() == 2);  // an empty line inside
  CHECK(machine_from(kTwo.substr(0, kTwo.size() - 1)).size() == 2);   // no line end at the end
  CHECK(machine_from(kTwo + "\n" + kTwo).size() == 2);                // the same once more
  CHECK(machine_from(with(kTwo, "GPU0\t X ", "GPU0\t\xc2\xa0X\xc2\xa0")).size() == 2);
  const Machine blanks = machine_from("GPU0 CPU Affinity NUMA Affinity\nGPU0   X   0-31 1 \t\t\n");
  CHECK(blanks.cards[0].cpus == "0-31");
  CHECK(blanks.cards[0].numa == "1");
  CHECK(machine_from("```\n" + kTwo + "```\n").size() == 2);
}

TEST_CASE("columns may stand in any order, names decide") {
  const Machine machine =
      machine_from("  GPU2 GPU0 GPU1\nGPU0 NV2 X SYS\nGPU1 PIX SYS X\nGPU2 X NV2 PIX\n");
  REQUIRE(machine.size() == 3);
  CHECK(machine.cards[0].number == 2);
  CHECK(machine.link(0, 1) == Link::nvlink(2));
  CHECK(machine.link(0, 2) == Link::pix());
  CHECK(machine.link(1, 2) == Link::sys());
}

TEST_CASE("NUMA affinity in its spellings") {
  const auto numa = [](const std::string& text) {
    return machine_from(tabs("|GPU0|CPU Affinity|NUMA Affinity|GPU NUMA ID\nGPU0| X |0-31|" + text +
                             "||N/A\n"))
        .cards[0]
        .numa;
  };
  CHECK(numa("0") == "0");
  CHECK(numa("0-1") == "0-1");
  CHECK(numa("0,1") == "0-1");
  CHECK(numa("1,0,3") == "0-1,3");
  CHECK(numa("N/A").empty());
  CHECK(numa("").empty());
  CHECK(machine_from(tabs("|GPU0|CPU Affinity|NUMA Affinity|GPU NUMA ID\nGPU0| X ||||N/A\n"))
            .cards[0]
            .place()
            .empty());
  // An older driver has no such column: then the CPUs tell where a card is.
  const Machine old = machine_from("GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-9\nGPU1 SYS X 10-19\n");
  CHECK(old.cards[1].place() == "CPUs 10-19");
  CHECK(old.places() == 2);
  CHECK_THAT(refusal(with(kTwo, "0-31\t0\n", "0-31\tzero\n")),
             ContainsSubstring("file:2:19: row GPU0: the NUMA affinity zero"));
  for (const char* wrong : {"1-0", "0-", "-1", "0,,1", "99999", "0 x"})
    CHECK_THAT(refusal(with(kTwo, "0-31\t0\n", std::string("0-31\t") + wrong + "\n")),
               ContainsSubstring("NUMA affinity"));
}

TEST_CASE("names, UUIDs and NVLinks come from nvlink -s and -L") {
  const Machine machine = read_machine({{"m", with(with(kTwo, "PHB", "NV4"), "PHB", "NV4")},
                                        {"n", read_sample("nvlink_one_down"), Role::nvlink}});
  CHECK(machine.cards[1].name == "NVIDIA RTX A6000");
  CHECK(machine.cards[1].uuid == "GPU-1a2b0000-0000-4000-8000-000000000000");
  CHECK(machine.cards[0].active_nvlinks == 4);
  CHECK(machine.cards[1].active_nvlinks == 3);
  CHECK(machine.cards[1].inactive_nvlinks == 1);
  const Machine bare = machine_from(kTwo +
                                    "GPU 0: Tesla V100-SXM2-32GB\n\t Link 0: 25.781 GB/s\n\t Link "
                                    "0, P2P is supported: true\nGPU 1:\n");
  CHECK(bare.cards[0].name == "Tesla V100-SXM2-32GB");
  CHECK(bare.cards[0].uuid.empty());
  CHECK(bare.cards[0].active_nvlinks == 1);
  CHECK_FALSE(bare.cards[1].active_nvlinks);
  const Machine mig = sample_machine("mig");
  CHECK(mig.cards[0].has_mig);
  CHECK_FALSE(mig.cards[1].has_mig);
}

TEST_CASE("a part of a machine keeps what belongs to its cards") {
  const Machine part = sample_machine("workstation").select({1, 0});
  CHECK(part.cards[0].number == 1);
  CHECK(part.p2p(0, 1) == P2pStatus::chipset_not_supported);
  const Machine dgx = sample_machine("dgx_h100").select({7, 2});
  CHECK(dgx.cards[0].number == 7);
  CHECK(dgx.nearest_nics(0) == std::vector<std::size_t>{11});
  CHECK_THROWS(sample_machine("workstation").select({2}));
}

TEST_CASE("what is wrong is named with line and column") {
  const auto expect = [](const std::string& text, const std::string& message) {
    CHECK_THAT(refusal(text), ContainsSubstring(message));
  };
  expect("", "file: holds no output of nvidia-smi topo -m");
  expect("hello\n", "file: holds no output of nvidia-smi topo -m");
  expect(kTwoP2p, "no matrix of nvidia-smi topo -m");
  expect(with(kTwo, "PHB", "PCI"),
         "file:2:10: row GPU0, column GPU1: PCI is none of NV1 to NV99, PIX");
  expect(with(kTwo, "PHB", "NV0"), "NV0 is none of");
  expect(with(kTwo, "PHB", "X"), "file:2:10: row GPU0, column GPU1: X is none of");
  expect(with(kTwo, " X ", "SYS"),
         "file:2:6: row GPU0, column GPU0: SYS is none of X, as where a card meets itself");
  expect(with(kTwo, "PHB", "NV4"),
         "file:3:6: GPU1 to GPU0 is PHB, but GPU0 to GPU1 is NV4 (line 2, column 10)");
  expect(kTwo.substr(0, kTwo.find("GPU1\tPHB")),
         "file:1:7: no row for GPU1: the table ends in line 2 with 1 of 2 rows");
  expect(kTwo.substr(0, kTwo.find("\t X \t0-31\t0\n")),
         "file:3:9: the row of GPU1 ends after 1 of 2 cells");
  expect(with(kTwo, "\tPHB\t0", "\tPHB\tSYS\t0"), "file:2:14: row GPU0: SYS is a cell too many");
  expect(kTwo + "GPU2\tPHB\tPHB\n", "file:4:1: GPU2 has a row but no column in line 1");
  expect(kTwo + "GPU1\tPHB\t X \n", "file:4:1: GPU1 has two rows");
  expect(with(kTwo, "\tGPU1", "\tGPU1\tGPU1"), "file:1:12: GPU1 has two columns");
  expect(kTwo.substr(kTwo.find('\n')), "file:2:1: the row of GPU0 belongs to no table");
  expect(kTwo + with(with(kTwo, "PHB", "NV4"), "PHB", "NV4"),
         "file:4:2: a second matrix of topo -m, and it differs from that of file, line 1");
  expect(kTwo + with(kTwoP2p, "OK", "MAYBE"), "column GPU1: MAYBE is none of OK, CNS");
  expect(kTwo + "Legend:\n\tGPU0\nGPU0\tX\n",
         "the table of P2P status has 1 GPUs, the matrix of file, line 1 has 2");
  expect(kTwo + "GPU 0: A (UUID: GPU-1)\nGPU 0: A (UUID: GPU-2)\n",
         "file:5:1: GPU 0 has the UUID GPU-2, before it had GPU-1");
  expect(
      "\xff\xfe"
      "G",
      "file: is UTF-16 text");
  // A control byte or a long word does not reach the terminal as it is.
  expect(with(kTwo, "PHB", "P\x80H" + std::string(500, 'y')),
         "P?Hyyyyyyyyyyyyyyyyyyyyy... is none of");
}

TEST_CASE("a row without the affinity that others have is cut off") {
  const std::string text = kTwo.substr(0, kTwo.size() - 1);  // without the last line end
  CHECK(machine_from(text).cards[1].numa == "0");
  for (const std::size_t bytes : {1, 2, 3, 6, 7})
    CHECK_THAT(refusal(text.substr(0, text.size() - bytes)),
               ContainsSubstring("file:3:") && ContainsSubstring("affinity; one is cut off"));
  CHECK(machine_from("GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS\nGPU1 SYS X\n").places() ==
        0);
}

TEST_CASE("missing rows of NICs are told and do no harm") {
  const std::string text = read_sample("dgx_h100");
  const Machine machine = machine_from(text.substr(0, text.find("\nNIC7\tSYS")));
  CHECK(machine.nics.size() == 12);
  CHECK_THAT(machine.notes.at(0),
             ContainsSubstring("file, line 17: the table ends with 7 of 12 rows of NICs"));
  CHECK(sample_machine("dgx_h100").notes.size() == 2);
}

TEST_CASE("each file must hold what its option says") {
  CHECK_THAT(refusal({{"a", kTwo}, {"r", "nothing", Role::p2p_read}}),
             ContainsSubstring("r: holds no output of nvidia-smi topo -p2p r"));
  CHECK_THAT(refusal({{"a", kTwo}, {"w", kTwo, Role::p2p_write}}),
             ContainsSubstring("w: holds no output of nvidia-smi topo -p2p w"));
  CHECK_THAT(refusal({{"a", kTwo}, {"n", "nothing", Role::nvlink}}),
             ContainsSubstring("n: holds no output of nvidia-smi nvlink -s"));
}

TEST_CASE("all problems come at once, and not more than fit a screen") {
  const std::string text = refusal(with(with(kTwo, "PHB", "ABC"), "PHB", "DEF"));
  CHECK_THAT(text, ContainsSubstring("file:2:10"));
  CHECK_THAT(text, ContainsSubstring("file:3:6"));
  std::string wide = "GPU0 GPU1";
  for (int i = 2; i < 60; ++i) wide += " GPU" + std::to_string(i);
  wide += "\n";
  for (int i = 0; i < 60; ++i) {
    wide += "GPU" + std::to_string(i);
    for (int j = 0; j < 60; ++j) wide += " ?";
    wide += "\n";
  }
  const std::string many = refusal(wide);
  CHECK(std::count(many.begin(), many.end(), '\n') == 20);
  CHECK_THAT(many, ContainsSubstring("(and 3580 more)"));
}

TEST_CASE("a text cut off at any byte is read or refused, never misread") {
  for (const std::string& name : machine_samples()) {
    const std::string text = read_sample(name);
    const Machine whole = machine_from(text);
    std::size_t read = 0;
    for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
      try {
        const Machine part = machine_from(text.substr(0, bytes));
        if (!same_links(part, whole) || (part.size() > 1 && !same_places(part, whole)))
          FAIL(name << " cut off after " << bytes << " bytes is read as another machine");
        ++read;
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::input) throw;
      }
    }
    CHECK((read > 0 && read < text.size()));
  }
}
