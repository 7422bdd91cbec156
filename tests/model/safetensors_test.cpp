#include "common/model/safetensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/checkpoint.h"
#include "tests/temp_folder.h"

namespace tp {
namespace {

constexpr const char* kOneTensor = R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

// A file: the length, the header, the data.
std::string file_of(const std::string& header, const std::string& data) {
  return bytes_of<std::uint64_t>({header.size()}) + header + data;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return file_of(header, std::string(data_bytes, '\0'));
}

// "name":{...} for a header.
std::string entry(const std::string& name,
                  const std::string& dtype,
                  const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

// The message with which the model folder or file is refused.
std::string refusal(const std::filesystem::path& path) {
  try {
    Safetensors::open(path);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "not refused";
}

// The same for a file with these bytes. Every message names the file.
std::string refusal_of(const std::string& bytes) {
  const TempFolder folder;
  const auto path = folder.write("model.safetensors", bytes);
  const std::string message = refusal(folder.path());
  CHECK_THAT(message, ContainsSubstring(path.string()));
  return message;
}

void check_accepted(const std::string& bytes) {
  const TempFolder folder;
  folder.write("model.safetensors", bytes);
  CHECK(refusal(folder.path()) == "not refused");
}

std::vector<float> floats_of(ConstTensorView tensor) {
  Tensor wide = Tensor::on_host(tensor.shape);
  copy_host(tensor, wide);
  const float* values = wide.row<float>(0);
  return {values, values + tensor.shape.elements()};
}

TEST_CASE("safetensors - a tensor is read where it lies in the file") {
  const TempFolder folder;
  const std::string padded = kOneTensor + std::string(7, ' ');  // 64 bytes: the data is aligned
  folder.write("model.safetensors", file_of(padded, bytes_of<float>({1, 2, 3, 4})));
  const Safetensors opened = Safetensors::open(folder.path());
  CHECK(opened.names() == std::vector<std::string>{"w"});
  CHECK(opened.contains("w"));
  CHECK_FALSE(opened.contains("v"));
  CHECK(opened.notes().empty());

  const ConstTensorView w = opened.tensor("w");
  CHECK(w.dtype == DType::f32);
  CHECK(w.shape == Shape{2, 2});
  CHECK(floats_of(w)[2] == 3);
  CHECK_THROWS_WITH(opened.tensor("v"),
                    (folder.path() / "model.safetensors").string() + ": has no tensor \"v\"");
}

TEST_CASE("safetensors - views stay valid when the object moves") {
  const TempFolder folder;
  folder.write("model.safetensors", file_of(kOneTensor, bytes_of<float>({1, 2, 3, 4})));
  Safetensors opened = Safetensors::open(folder.path());
  const ConstTensorView w = opened.tensor("w");
  const Safetensors moved = std::move(opened);
  CHECK(moved.tensor("w").data == w.data);
  CHECK(floats_of(w)[3] == 4);
}

TEST_CASE("safetensors - a tensor off its alignment reads the same") {
  for (std::size_t padding = 0; padding < 8; ++padding) {
    const TempFolder folder;
    const std::string header = "{" + entry("a", "F32", "[3]", "[0,12]") + "," +
                               entry("b", "BF16", "[1,2]", "[12,16]") + "}" +
                               std::string(padding, ' ');
    const auto path = folder.write(
        "model.safetensors",
        file_of(header, bytes_of<float>({1, -2, 3}) + bytes_of<std::uint16_t>({0x3f80, 0xc2f7})));
    const Safetensors opened = Safetensors::open(path);
    CHECK(floats_of(opened.tensor("a")) == std::vector<float>{1, -2, 3});
    CHECK(floats_of(opened.tensor("b")) == std::vector<float>{1, -123.5f});

    const std::size_t data_begin = 8 + header.size();
    CHECK(opened.tensor("a").aligned() == (data_begin % 4 == 0));
    CHECK(opened.tensor("b").aligned() == (data_begin % 2 == 0));
    CHECK(opened.place_of(opened.tensor("b").data).offset ==
          static_cast<std::int64_t>(data_begin) + 12);
  }
}

TEST_CASE("safetensors - headers that are legal are accepted") {
  check_accepted(file_of(kOneTensor, 16));
  for (const char* padding : {"       ", " ", "\n\t\r "})
    check_accepted(file_of(std::string(kOneTensor) + padding, 16));
  check_accepted(file_of("{" + entry("scalar", "F32", "[]", "[0,4]") + "}", 4));
  check_accepted(file_of("{" + entry("empty", "F32", "[0,8]", "[0,0]") + "}", 0));
  check_accepted(file_of("{" + entry("empty", "BF16", "[3,0]", "[16,16]") + "," +
                             entry("w", "F32", "[2,2]", "[0,16]") + "}",
                         16));
  check_accepted(file_of("{" + entry("empty", "F32", "[0]", "[8,8]") + "," +
                             entry("w", "F32", "[2,2]", "[0,16]") + "}",
                         16));  // no bytes that could overlap
  check_accepted(file_of("{}", 0));
  // The metadata counts as no tensor; the order of the entries does not matter.
  check_accepted(file_of(R"({"__metadata__":{"format":"pt","x":"y"},)" +
                             entry("b", "F32", "[1]", "[4,8]") + "," +
                             entry("a", "F32", "[1]", "[0,4]") + "}",
                         8));
}

TEST_CASE("safetensors - the length of the header is checked before it is used") {
  const std::string base = file_of(kOneTensor, 16);
  const auto with_length = [&](std::uint64_t length) {
    return refusal_of(bytes_of<std::uint64_t>({length}) + base.substr(8));
  };
  CHECK_THAT(with_length(0xffffffff), ContainsSubstring("4294967295"));
  CHECK_THAT(with_length(74), ContainsSubstring("74"));  // one byte more than there is
  CHECK_THAT(with_length(std::numeric_limits<std::uint64_t>::max()),
             ContainsSubstring("18446744073709551615"));
  CHECK_THAT(with_length(0), ContainsSubstring("does not begin with"));
  CHECK_THAT(with_length(56), ContainsSubstring("no valid JSON"));
  CHECK_THAT(with_length(58), ContainsSubstring("no valid JSON"));  // reaches into the data
  CHECK_THAT(refusal_of(base.substr(0, 7)), ContainsSubstring("has 7 bytes"));
  CHECK_THAT(refusal_of(base.substr(0, 20)), ContainsSubstring("57 bytes, but only 12"));
}

TEST_CASE("safetensors - a header above 100 million bytes is refused") {
  const TempFolder folder;
  const auto path = folder.write("model.safetensors", bytes_of<std::uint64_t>({100'000'001}) + "{");
  std::filesystem::resize_file(path, 110'000'000);  // sparse: takes no space
  CHECK_THAT(refusal(path), ContainsSubstring("must be at most 100000000"));
}

TEST_CASE("safetensors - files that hold no weights are refused with the reason") {
  CHECK_THAT(refusal_of("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n"),
             ContainsSubstring("Git LFS pointer"));
  CHECK_THAT(refusal_of(""), ContainsSubstring("is empty"));

  const TempFolder folder;
  CHECK_THAT(refusal(folder.path()), ContainsSubstring("model.safetensors: cannot be read"));
  CHECK_THAT(refusal(folder.path() / "nowhere"), ContainsSubstring("nowhere: cannot be read"));
  std::filesystem::create_directory(folder.path() / "model.safetensors");
  CHECK_THAT(refusal(folder.path()), ContainsSubstring("model.safetensors: is a folder"));
  const std::filesystem::path pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(refusal(pipe), ContainsSubstring("pipe: is no regular file"));
}

TEST_CASE("safetensors - data that is cut off is refused") {
  CHECK_THAT(refusal_of(file_of(kOneTensor, 12)),
             ContainsSubstring("\"w\": data_offsets = [0,16]: must be within the 12 bytes"));
  CHECK_THAT(refusal_of(file_of(kOneTensor, 0)), ContainsSubstring("within the 0 bytes"));
  // The only problem: nothing is said of the bytes that only seem to belong to no tensor.
  const std::string message = refusal_of(file_of(
      "{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 8));
  CHECK(std::count(message.begin(), message.end(), '\n') == 0);
}

TEST_CASE("safetensors - every byte must belong to exactly one tensor") {
  const auto two = [](const std::string& a, const std::string& b, std::size_t data_bytes) {
    return refusal_of(file_of(
        "{" + entry("a", "F32", "[4]", a) + "," + entry("b", "F32", "[4]", b) + "}", data_bytes));
  };
  CHECK_THAT(refusal_of(file_of(kOneTensor, 20)), ContainsSubstring("bytes 16 to 20"));
  CHECK_THAT(two("[0,16]", "[8,24]", 24), ContainsSubstring("\"a\" and \"b\" overlap"));
  CHECK_THAT(two("[8,24]", "[0,16]", 24), ContainsSubstring("bytes 8 to 16"));
  CHECK_THAT(two("[0,16]", "[0,16]", 16), ContainsSubstring("overlap"));
  CHECK_THAT(two("[0,16]", "[20,36]", 36), ContainsSubstring("bytes 16 to 20"));
  CHECK_THAT(two("[4,20]", "[20,36]", 36), ContainsSubstring("bytes 0 to 4"));
  // One tensor inside another, and a third one that begins within the outer one only.
  CHECK_THAT(refusal_of(file_of("{" + entry("in", "F32", "[1]", "[4,8]") + "," +
                                    entry("late", "F32", "[2]", "[12,20]") + "," +
                                    entry("out", "F32", "[4]", "[0,16]") + "}",
                                20)),
             ContainsSubstring("\"out\" and \"in\"") && ContainsSubstring("\"out\" and \"late\""));
}

TEST_CASE("safetensors - the shape must match the bytes") {
  const auto w = [](const std::string& dtype, const std::string& shape, std::size_t bytes) {
    return refusal_of(
        file_of("{" + entry("w", dtype, shape, "[0," + std::to_string(bytes) + "]") + "}", bytes));
  };
  CHECK_THAT(w("F32", "[2,3]", 16), ContainsSubstring("F32 [2, 3] needs 24"));
  CHECK_THAT(w("BF16", "[2,2]", 16), ContainsSubstring("needs 8"));
  CHECK_THAT(w("F32", "[]", 16), ContainsSubstring("needs 4"));
  CHECK_THAT(w("F32", "[4,0]", 16), ContainsSubstring("needs 0"));
  CHECK_THAT(w("F4", "[3]", 2), ContainsSubstring("a whole number of bytes"));
  for (const char* shape : {"[4294967296,4294967296]", "[2305843009213693952,8]",
                            "[18446744073709551615]", "[0,4294967296,4294967296]"})
    CHECK_THAT(w("F32", shape, 0), ContainsSubstring("does not fit into 63 bits"));
}

TEST_CASE("safetensors - an unknown dtype is refused by name and its offsets are still checked") {
  CHECK_THAT(refusal_of(file_of("{" + entry("w", "F33", "[2,2]", "[0,16]") + "}", 16)),
             ContainsSubstring("dtype = \"F33\""));
  CHECK_THAT(refusal_of(file_of("{" + entry("w", "f32", "[2,2]", "[0,16]") + "}", 20)),
             ContainsSubstring("dtype = \"f32\"") && ContainsSubstring("bytes 16 to 20"));
}

TEST_CASE("safetensors - offsets must be two ascending whole numbers") {
  for (const char* offsets : {"[16,0]", "[-1,15]", "[\"0\",\"16\"]", "[0.0,16.0]", "[0]",
                              "[0,8,16]", "[]", "null", "16", "[0,1e3]", "[0,true]", "[-0,16]"})
    CHECK_THAT(
        refusal_of(file_of("{" + entry("w", "F32", "[2,2]", offsets) + "}", 16)),
        ContainsSubstring("\"w\": data_offsets = ") && ContainsSubstring("must be two whole"));
  CHECK_THAT(
      refusal_of(file_of("{" + entry("w", "F32", "[2,2]", "[0,18446744073709551615]") + "}", 16)),
      ContainsSubstring("within the 16 bytes"));
}

TEST_CASE("safetensors - names and keys must not stand twice") {
  CHECK_THAT(refusal_of(file_of("{" + entry("w", "F32", "[4]", "[0,16]") + "," +
                                    entry("w", "F32", "[4]", "[16,32]") + "}",
                                32)),
             ContainsSubstring("\"w\" stands twice"));
  CHECK_THAT(refusal_of(file_of("{" + entry("w", "F32", "[4]", "[0,16]") + "," +
                                    entry("\\u0077", "F32", "[4]", "[16,32]") + "}",
                                32)),
             ContainsSubstring("\"w\" stands twice"));  // the same name, written otherwise
  CHECK_THAT(refusal_of(file_of(
                 R"({"w":{"dtype":"F32","dtype":"F16","shape":[2,2],"data_offsets":[0,16]}})", 16)),
             ContainsSubstring("the key \"dtype\" twice"));
  CHECK_THAT(refusal_of(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0)),
             ContainsSubstring("\"__metadata__\" stands twice"));
}

TEST_CASE("safetensors - the header must be JSON of the form of the format") {
  CHECK_THAT(refusal_of(file_of(" " + std::string(kOneTensor), 16)),
             ContainsSubstring("does not begin with '{'"));
  CHECK_THAT(refusal_of(file_of("\xef\xbb\xbf" + std::string(kOneTensor), 16)),
             ContainsSubstring("does not begin with '{'"));
  for (const std::string header :
       {R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})", R"({"w":})", "{'w':1}",
        R"({"w":{"dtype":"F32","shape":[1e999],"data_offsets":[0,16]}})"})
    CHECK_THAT(refusal_of(file_of(header, 16)), ContainsSubstring("no valid JSON"));
  CHECK_THAT(refusal_of(file_of(kOneTensor + std::string(1, '\0'), 16)),
             ContainsSubstring("no valid JSON"));

  for (const char* header : {
           R"({"w":5})",
           R"({"w":null})",
           R"({"w":[0,16]})",
           R"({"w":{"shape":{"x":2}}})",
           R"({"w":{"shape":[[2],[2]]}})",
           R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"stride":[2,1]}})",
           R"({"__metadata__":{"format":1},"w":{}})",
           R"({"__metadata__":{"a":{"b":"c"}}})",
           R"({"__metadata__":"pt"})",
       })
    CHECK_THAT(refusal_of(file_of(header, 16)), ContainsSubstring("in its header, \""));
  CHECK_THAT(refusal_of(file_of("{\"w\":" + std::string(100'000, '['), 16)),
             ContainsSubstring("in its header, \"w\""));
  CHECK_THAT(refusal_of(file_of(R"({"w":{}})", 16)),
             ContainsSubstring("dtype is missing") && ContainsSubstring("shape is missing") &&
                 ContainsSubstring("data_offsets is missing"));
  CHECK_THAT(refusal_of(file_of(R"({"w":{"dtype":7,"shape":[2,-2],"data_offsets":[0,16]}})", 16)),
             ContainsSubstring("dtype = 7") && ContainsSubstring("shape = [2,-2]"));
}

TEST_CASE("safetensors - all problems of a header are reported at once") {
  const std::string message = refusal_of(file_of("{" + entry("a", "F33", "[2,2]", "[0,16]") + "," +
                                                     entry("b", "F32", "[2,3]", "[16,32]") + "," +
                                                     entry("c", "F32", "[2,2]", "[40,56]") + "}",
                                                 56));
  CHECK_THAT(message, ContainsSubstring("F33") && ContainsSubstring("needs 24") &&
                          ContainsSubstring("bytes 32 to 40"));
  CHECK(std::count(message.begin(), message.end(), '\n') == 2);

  std::string many = "{";
  for (int i = 0; i < 100; ++i)
    many += (i > 0 ? "," : "") + entry("t" + std::to_string(i), "F33", "[0]", "[0,0]");
  CHECK_THAT(refusal_of(file_of(many + "}", 0)), ContainsSubstring("(and 80 more)"));
}

TEST_CASE("safetensors - what cannot be used is listed and refused when it is asked for") {
  const TempFolder folder;
  folder.write("model.safetensors", file_of("{" + entry("five", "F32", "[1,1,1,1,1]", "[16,20]") +
                                                "," + entry("four", "F32", "[1,1,1,1]", "[20,24]") +
                                                "," + entry("ids", "I64", "[2]", "[0,16]") + "}",
                                            24));
  const Safetensors opened = Safetensors::open(folder.path());
  CHECK(opened.names() == std::vector<std::string>{"five", "four", "ids"});
  CHECK(opened.tensor("four").shape == Shape{1, 1, 1, 1});
  CHECK_THROWS_WITH(opened.tensor("ids"), ContainsSubstring("model.safetensors: tensor \"ids\"") &&
                                              ContainsSubstring("I64"));
  CHECK_THROWS_WITH(opened.tensor("five"), ContainsSubstring("at most 4 dimensions"));

  std::string ones = "1";
  for (int dims = 2; dims <= 64; ++dims) ones += ",1";
  check_accepted(file_of("{" + entry("w", "F32", "[" + ones + "]", "[0,4]") + "}", 4));
  CHECK_THAT(refusal_of(file_of("{" + entry("w", "F32", "[" + ones + ",1]", "[0,4]") + "}", 4)),
             ContainsSubstring("more than 64"));
}

TEST_CASE("safetensors - each tensor is converted by its own dtype") {
  const TempFolder folder;
  folder.write(
      "model.safetensors",
      file_of(
          "{" + entry("norm", "F32", "[2]", "[0,8]") + "," + entry("b", "BF16", "[6]", "[8,20]") +
              "," + entry("h", "F16", "[7]", "[20,34]") + "}",
          bytes_of<float>({0.1f, 70000}) +
              bytes_of<std::uint16_t>({0x3f80, 0xc2f7, 0x4780, 0x0001, 0x7f80, 0x7fc0}) +
              bytes_of<std::uint16_t>({0x3c00, 0x7bff, 0x0001, 0x83ff, 0xfc00, 0x7e00, 0x8000})));
  const Safetensors opened = Safetensors::open(folder.path());
  const auto floats = [&](const char* name) { return floats_of(opened.tensor(name)); };
  CHECK(floats("norm") == std::vector<float>{0.1f, 70000});

  const std::vector<float> b = floats("b");
  CHECK(std::vector<float>(b.begin(), b.begin() + 4) ==
        std::vector<float>{1, -123.5f, 65536, 0x1p-133f});
  CHECK(b[4] == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(b[5]));

  const std::vector<float> h = floats("h");
  CHECK(std::vector<float>(h.begin(), h.begin() + 4) ==
        std::vector<float>{1, 65504, 0x1p-24f, -1023 * 0x1p-24f});
  CHECK(h[4] == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(h[5]));
  CHECK(std::signbit(h[6]));
  CHECK(h[6] == 0);
}

// A folder with an index over two shards, made of one-element tensors.
class ShardedFolder {
 public:
  ShardedFolder() {
    shard("s1", {{"A", 1.0f}});
    shard("s2", {{"A", 9.0f}, {"B", 2.0f}});  // this A is stale
  }

  void shard(const std::string& name, const std::vector<std::pair<std::string, float>>& tensors) {
    std::string header = "{";
    std::string data;
    for (const auto& [tensor, value] : tensors) {
      const std::string begin = std::to_string(data.size());
      data += bytes_of<float>({value});
      if (header != "{") header += ",";
      header += entry(tensor, "F32", "[1]", "[" + begin + "," + std::to_string(data.size()) + "]");
    }
    folder.write(name, file_of(header + "}", data));
  }

  void index(const std::string& weight_map) const {
    folder.write("model.safetensors.index.json",
                 R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}");
  }

  // The message that refuses it; names the index.
  std::string refusal_with(const std::string& weight_map) const {
    index(weight_map);
    const std::string message = refusal(folder.path());
    CHECK_THAT(message, ContainsSubstring("model.safetensors.index.json"));
    return message;
  }

  TempFolder folder;
};

TEST_CASE("safetensors - the index decides which file a tensor comes from") {
  ShardedFolder model;
  model.index(R"({"A":"s1","B":"s2"})");
  model.folder.write("consolidated.safetensors", "not even a header");
  model.folder.write("model.safetensors", "not even a header");
  const Safetensors opened = Safetensors::open(model.folder.path());
  CHECK(opened.names() == std::vector<std::string>{"A", "B"});
  CHECK(floats_of(opened.tensor("A"))[0] == 1);
  CHECK(floats_of(opened.tensor("B"))[0] == 2);
  const auto ignored = [](const std::string& note) {
    return note.find("/s2: ignored \"A\"") != std::string::npos;
  };
  CHECK(std::count_if(opened.notes().begin(), opened.notes().end(), ignored) == 1);
  CHECK_THROWS_WITH(opened.tensor("C"), ContainsSubstring("index.json: has no tensor \"C\""));
  CHECK_THAT(opened.notes().front(),
             ContainsSubstring("index.json: does not name \"consolidated.safetensors\", "
                               "\"model.safetensors\", not opened"));
  REQUIRE(opened.files().size() == 2);
  const Safetensors::BytePlace place = opened.place_of(opened.tensor("B").data);
  CHECK(opened.files()[place.file].path().filename() == "s2");
  CHECK_THROWS_AS(opened.place_of(nullptr), Error);
}

TEST_CASE("safetensors - an index that is a broken link is not overlooked") {
  const TempFolder folder;
  folder.write("model.safetensors", file_of(kOneTensor, 16));
  CHECK(refusal(folder.path()) == "not refused");
  std::filesystem::create_symlink("nowhere", folder.path() / "model.safetensors.index.json");
  CHECK_THAT(refusal(folder.path()), ContainsSubstring("index.json: cannot be read"));
}

TEST_CASE("safetensors - links to files elsewhere are followed as the hub's cache has them") {
  const TempFolder folder, blobs;
  const auto blob = blobs.write("1a2b", file_of(kOneTensor, bytes_of<float>({1, 2, 3, 4})));
  std::filesystem::create_symlink(blob, folder.path() / "model.safetensors");
  CHECK(Safetensors::open(folder.path()).tensor("w").shape == Shape{2, 2});
}

TEST_CASE("safetensors - an index above 64 MiB is refused unread") {
  ShardedFolder model;
  model.index(R"({"A":"s1"})");
  std::filesystem::resize_file(model.folder.path() / "model.safetensors.index.json",
                               (64 << 20) + 1);  // sparse: takes no space
  CHECK_THAT(refusal(model.folder.path()), ContainsSubstring("has 67108865 bytes"));
}

TEST_CASE("safetensors - the other file wins when the index says so") {
  ShardedFolder model;
  model.shard("s1", {{"A", 1.0f}, {"C", 3.0f}});
  model.index(R"({"A":"s2","B":"s2","C":"s1"})");
  const Safetensors opened = Safetensors::open(model.folder.path());
  CHECK(floats_of(opened.tensor("A"))[0] == 9);
  CHECK(floats_of(opened.tensor("C"))[0] == 3);
}

TEST_CASE("safetensors - an index that its files do not fulfil is refused") {
  ShardedFolder model;
  CHECK_THAT(model.refusal_with(R"({"A":"s1","C":"s2"})"),
             ContainsSubstring("\"s2\" for \"C\"") && ContainsSubstring("no such tensor"));
  CHECK_THAT(model.refusal_with(R"({"A":"s1","B":"s3","C":"s4","D":"s4"})"),
             ContainsSubstring("\"s3\" (1 tensors), which is missing") &&
                 ContainsSubstring("\"s4\" (2 tensors), which is missing"));
  // Files that are missing are found before any other file is opened.
  model.folder.write("s1", "no header");
  CHECK_THAT(model.refusal_with(R"({"A":"s1","B":"s3"})"), ContainsSubstring("\"s3\""));
}

TEST_CASE("safetensors - the index must not lead out of the folder") {
  ShardedFolder model;
  const std::string outside = model.folder.path().filename().string();
  for (const std::string& file :
       {"../" + outside + "/s1", model.folder.path().string() + "/s1", std::string("./s1"),
        std::string("sub/s1"), std::string(".."), std::string("."), std::string("..\\\\s1"),
        std::string("s1\\u0000")})
    CHECK_THAT(model.refusal_with("{\"A\":\"" + file + "\"}"),
               ContainsSubstring("must be the name of a file in this folder"));
  for (const char* file : {"1", "null", "\"\"", "[\"s1\"]", "{\"s1\":1}"})
    CHECK_THAT(model.refusal_with("{\"A\":" + std::string(file) + ",\"B\":\"s2\"}"),
               ContainsSubstring("must be the name of a file in this folder"));
}

TEST_CASE("safetensors - an index that is broken itself is refused") {
  ShardedFolder model;
  CHECK_THAT(model.refusal_with("[]"), ContainsSubstring("must have a weight_map"));
  CHECK_THAT(model.refusal_with("{\"A\":"), ContainsSubstring("no valid JSON"));
  CHECK_THAT(model.refusal_with(R"({"A":"s1","A":"s2"})"), ContainsSubstring("\"A\" stands twice"));
  for (const char* text : {"[]", "7", "{}", "null"}) {
    model.folder.write("model.safetensors.index.json", text);
    CHECK_THAT(refusal(model.folder.path()), ContainsSubstring("must have a weight_map"));
  }
}

TEST_CASE("safetensors - the problems of all shards are reported at once") {
  ShardedFolder model;
  model.folder.write("s1", file_of("{" + entry("A", "F33", "[1]", "[0,4]") + "}", 4));
  model.folder.write("s2", file_of("{" + entry("B", "F32", "[1]", "[0,4]") + "}", 8));
  model.index(R"({"A":"s1","B":"s2"})");
  CHECK_THAT(refusal(model.folder.path()), ContainsSubstring("/s1: tensor \"A\": dtype") &&
                                               ContainsSubstring("/s2: bytes 4 to 8"));
}

TEST_CASE("safetensors - the bundled model opens") {
  const auto folder = std::filesystem::path(TP_SOURCE_DIR) / "models" / "austen-5m";
  const Safetensors opened = Safetensors::open(folder);
  CHECK(opened.names().size() == 56);
  CHECK(opened.notes().empty());
  const ConstTensorView embedding = opened.tensor("model.embed_tokens.weight");
  CHECK(embedding.dtype == DType::bf16);
  CHECK(embedding.shape == Shape{4353, 256});
  CHECK(opened.tensor("model.norm.weight").shape == Shape{256});
  CHECK_FALSE(opened.contains("lm_head.weight"));
  CHECK_FALSE(opened.contains("__metadata__"));
}

}  // namespace
}  // namespace tp
