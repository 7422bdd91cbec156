// The stages of a tokenizer around its merges. The ids and texts are those that Hugging Face's
// tokenizers 0.22 and 0.23 give for the same files.

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/model/normalizer.h"
#include "common/model/stream_decoder.h"
#include "common/model/tokenizer.h"
#include "tests/catch.h"
#include "tests/model/tokenizer_files.h"

namespace tp {
namespace {

const char* const kBlank = "\xE2\x96\x81";  // U+2581
const char* const kReplacement = "\xEF\xBF\xBD";

json replace(const std::string& what, const std::string& by) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
}

json sequence(const char* key, const json& steps) {
  return {{"type", "Sequence"}, {key, steps}};
}

// The id of a byte in sentencepiece_file().
std::int32_t byte(unsigned value) {
  return static_cast<std::int32_t>(10 + value);
}

// A small relative of Llama 2's, without the stage that writes blanks as U+2581.
json sentencepiece_file() {
  const std::string blank = kBlank;
  json vocab = {{"<unk>", 0}, {blank, 1},         {"a", 2},         {"b", 3},    {blank + "a", 4},
                {"ab", 5},    {blank + blank, 6}, {"b" + blank, 7}, {"<s>", 300}};
  for (unsigned value = 0; value < 256; ++value)
    vocab[fmt::format("<0x{:02X}>", value)] = byte(value);
  json file = file_with(vocab, {blank + " a", "a b", blank + " " + blank, "b " + blank});
  file["model"].update({{"unk_token", "<unk>"}, {"fuse_unk", true}, {"byte_fallback", true}});
  file["added_tokens"] = {added("<s>", 300, {{"special", true}}), added("<x>", 301)};
  file["decoder"] =
      sequence("decoders", {replace(kBlank, " "),
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}},
                            {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}});
  return file;
}

json prepend_and_replace() {
  return sequence("normalizers",
                  {{{"type", "Prepend"}, {"prepend", kBlank}}, replace(" ", kBlank)});
}

json metaspace(const json& options = json::object()) {
  json step = {{"type", "Metaspace"}, {"replacement", kBlank}};
  step.update(options);
  return step;
}

// --- Normalizer ---

TEST_CASE("tokenizer stages - Prepend and Replace write blanks before and between words") {
  json file = sentencepiece_file();
  file["normalizer"] = prepend_and_replace();
  const Tokenizer t = load(file);
  CHECK(t.encode("a") == Ids{4});
  CHECK(t.encode("ab") == Ids{4, 3});
  CHECK(t.encode(" a") == Ids{1, 4});
  CHECK(t.encode("a  ab") == Ids{4, 1, 4, 3});
  CHECK(t.encode("b a") == Ids{1, 3, 4});
  CHECK(t.encode("").empty());
  // Each text between added tokens is one of its own.
  CHECK(t.encode("a<s>b") == Ids{4, 300, 1, 3});
  CHECK(t.encode("a<x> a") == Ids{4, 301, 1, 4});
  CHECK(t.encode("<s>") == Ids{300});
}

TEST_CASE("tokenizer stages - added tokens that are normalised are found in normalised text") {
  json file = sentencepiece_file();
  file["normalizer"] = prepend_and_replace();
  file["added_tokens"] = {added("<x>", 301, {{"normalized", true}}),
                          added("b b", 302, {{"normalized", true}})};
  const Tokenizer t = load(file);
  CHECK(t.encode("<x>") == Ids{301});
  CHECK(t.encode("a <x>b") == Ids{4, 301, 3});
  CHECK(t.encode("a<x>") == Ids{4, byte('<'), byte('x'), byte('>')});  // no blank before it
  CHECK(t.encode("b b") == Ids{302});
  CHECK(t.encode("a b b") == Ids{4, 302});
}

TEST_CASE("tokenizer stages - NFC composes what Unicode 9 has") {
  const NormalizerStep nfc = compose();
  CHECK(nfc("").empty());
  CHECK(nfc("plain \xE4\xBD\xA0") == "plain \xE4\xBD\xA0");
  CHECK(nfc("e\xCC\x81") == "\xC3\xA9");
  CHECK(nfc("\xE2\x84\xAB") == "\xC3\x85");                              // Angstrom sign
  CHECK(nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB") == "\xED\x95\x9C");  // Hangul
  CHECK(nfc("a\xCC\x81\xCC\xA3") == "\xE1\xBA\xA1\xCC\x81");             // dot below first
  // U+07FD came with Unicode 11 and stands below; it stays behind the accent.
  CHECK(nfc("b\xCC\x81\xDF\xBD") == "b\xCC\x81\xDF\xBD");
  CHECK(nfc("\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0") == "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0");
  CHECK(nfc(std::string("e\0\xCC\x81", 4)) == std::string("e\0\xCC\x81", 4));

  json file = byte_file();
  file["normalizer"] = {{"type", "NFC"}};
  CHECK(load(file).encode("e\xCC\x81!") == Ids{0xC3, 0xA9, '!'});
}

TEST_CASE("tokenizer stages - Replace may remove text") {
  json file = byte_file();
  file["normalizer"] = replace("-", "");
  CHECK(load(file).encode("a--b-") == Ids{'a', 'b'});
  CHECK(load(file).encode("--").empty());
}

// --- Pre-tokenizer ---

TEST_CASE("tokenizer stages - Metaspace prepends a blank before all pieces or the first or none") {
  using Cases = std::vector<std::pair<std::string, Ids>>;
  const auto check = [](const json& options, const Cases& cases) {
    json file = sentencepiece_file();
    file["pre_tokenizer"] = metaspace(options);
    const Tokenizer t = load(file);
    for (const auto& [text, ids] : cases) {
      CAPTURE(options.dump(), text);
      CHECK(t.encode(text) == ids);
    }
  };
  const std::string written = std::string(kBlank) + "a";
  const Cases always{{"a", {4}},         {"  a", {1, 4}},    {"a<s>b", {4, 300, 1, 3}},
                     {"<s>a", {300, 4}}, {"b a", {1, 3, 4}}, {written, {4}}};
  const Cases first{{"a", {4}},         {"  a", {1, 4}},    {"a<s>b", {4, 300, 3}},
                    {"<s>a", {300, 2}}, {"b a", {1, 3, 4}}, {written, {4}}};
  const Cases never{{"a", {2}},         {"  a", {1, 4}}, {"a<s>b", {2, 300, 3}},
                    {"<s>a", {300, 2}}, {"b a", {3, 4}}, {written, {4}}};
  for (const bool split : {true, false}) {
    check({{"split", split}}, always);
    check({{"split", split}, {"prepend_scheme", "always"}, {"str_rep", kBlank}}, always);
    check({{"split", split}, {"prepend_scheme", "first"}}, first);
    check({{"split", split}, {"prepend_scheme", "never"}}, never);
    check({{"split", split}, {"prepend_scheme", "never"}, {"add_prefix_space", false}}, never);
  }
  // Merges cross words only where those are not split.
  check({{"split", true}}, {{"  ", {1, 1}}, {"b  ", {1, 3, 1, 1}}});
  check({{"split", false}}, {{"  ", {6}}, {"b  ", {1, 3, 6}}});
}

TEST_CASE("tokenizer stages - only the first piece of the first text starts the input") {
  json file = sentencepiece_file();
  file["pre_tokenizer"] =
      sequence("pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}},
                                 metaspace({{"prepend_scheme", "first"}, {"split", false}})});
  const Tokenizer t = load(file);
  CHECK(t.encode("a1a") == Ids{4, byte('1'), 2});
  CHECK(t.encode("1a") == Ids{1, byte('1'), 2});
}

TEST_CASE("tokenizer stages - which piece is first must not depend on a normalizer") {
  json file = sentencepiece_file();
  file["pre_tokenizer"] = metaspace({{"prepend_scheme", "first"}});
  file["normalizer"] = {{"type", "NFC"}};
  CHECK(load(file).encode("a") == Ids{4});
  file["normalizer"] = replace("b", "a");
  CHECK_THAT(refusal(file), ContainsSubstring("pre_tokenizer.prepend_scheme = \"first\": must be"));
}

TEST_CASE("tokenizer stages - Digits cuts at each digit or around rows of them") {
  json file = byte_file();
  json& model = file["model"];
  model["vocab"]["12"] = 256;
  model["vocab"]["a1"] = 257;
  model["merges"] = {"1 2", "a 1"};
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto with_digits = [&](const json& digits) {
    file["pre_tokenizer"] = sequence("pretokenizers", {digits, byte_level});
    return load(file);
  };
  CHECK(with_digits({{"type", "Digits"}, {"individual_digits", true}}).encode("a12a1") ==
        Ids{'a', '1', '2', 'a', '1'});
  CHECK(with_digits({{"type", "Digits"}, {"individual_digits", false}}).encode("a12a1") ==
        Ids{'a', 256, 'a', '1'});
  CHECK(with_digits({{"type", "Digits"}}).encode("12") == Ids{256});
  file["pre_tokenizer"] = byte_level;
  CHECK(load(file).encode("a12a1") == Ids{'a', 256, 257});
}

// --- Unknown characters ---

TEST_CASE("tokenizer stages - a character without a token becomes its bytes") {
  json file = sentencepiece_file();
  file["normalizer"] = prepend_and_replace();
  CHECK(load(file).encode("\xC3\xA9\n") == Ids{1, byte(0xC3), byte(0xA9), byte('\n')});
  CHECK(load(file).encode("a\xC3\xA9"
                          "b") == Ids{4, byte(0xC3), byte(0xA9), 3});
}

TEST_CASE("tokenizer stages - without all its bytes a character is unknown") {
  json file = small_file();
  json& model = file["model"];
  model["vocab"].update({{"<unk>", 4}, {"<0x78>", 6}, {"<0xC3>", 7}, {"<0xA9>", 8}});
  const auto ids_with = [&](bool fuse_unk, bool byte_fallback, const std::string& text) {
    model["unk_token"] = "<unk>";
    model["fuse_unk"] = fuse_unk;
    model["byte_fallback"] = byte_fallback;
    return load(file).encode(text);
  };
  CHECK(ids_with(false, false, "axyb") == Ids{0, 4, 4, 1});
  CHECK(ids_with(true, false, "axyb") == Ids{0, 4, 1});
  // The unknown y waits for the next character with a token, and is fused with z.
  CHECK(ids_with(false, true, "ayxz\xC3\xA9x") == Ids{0, 6, 4, 7, 8, 6, 4});
  CHECK(ids_with(true, true, "ayxz\xC3\xA9x") == Ids{0, 6, 7, 8, 6, 4});
  model["unk_token"] = nullptr;
  CHECK_THROWS_WITH(load(file).encode("ay"), ContainsSubstring("'y' (U+0079)"));
}

// --- Post-processor ---

json special(const char* name) {
  return {{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
}

const json kText = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};

json template_with(const json& single) {
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", json::array()},
          {"special_tokens",
           {{"S", {{"id", "S"}, {"ids", {300, 301}}, {"tokens", {"<s>", "<x>"}}}},
            {"E", {{"id", "E"}, {"ids", {2}}, {"tokens", {"a"}}}}}}};
}

TEST_CASE("tokenizer stages - the template's special tokens are added when they are asked for") {
  json file = sentencepiece_file();
  CHECK(load(file).encode("b", true) == Ids{3});
  file["post_processor"] = template_with({special("S"), kText, special("E"), special("S")});
  const Tokenizer t = load(file);
  CHECK(t.encode("b") == Ids{3});
  CHECK(t.encode("b", false) == Ids{3});
  CHECK(t.encode("b", true) == Ids{300, 301, 3, 2, 300, 301});
  CHECK(t.encode("", true) == Ids{300, 301, 2, 300, 301});
  file["post_processor"] = sequence("processors", {{{"type", "ByteLevel"}, {"trim_offsets", false}},
                                                   template_with({kText, special("E")})});
  CHECK(load(file).encode("b", true) == Ids{3, 2});
}

// --- Decoder ---

TEST_CASE("tokenizer stages - byte tokens decode together and a leading blank goes once") {
  const Tokenizer t = load(sentencepiece_file());
  struct Case {
    Ids ids;
    std::string text;
    std::string text_skipping_special;
  };
  const std::string cat = "\xF0\x9F\x98\xB8";
  const std::string bad = kReplacement;
  const auto bytes = [](std::string_view text) {
    Ids ids;
    for (const char c : text) ids.push_back(byte(static_cast<unsigned char>(c)));
    return ids;
  };
  const auto join = [](std::initializer_list<Ids> parts) {
    Ids ids;
    for (const Ids& part : parts) ids.insert(ids.end(), part.begin(), part.end());
    return ids;
  };
  for (const auto& [ids, text, skipping] : std::vector<Case>{
           {{4, 1, 2}, "a a", "a a"},
           {{1, 4}, " a", " a"},
           {{6, 2}, " a", " a"},
           {{300, 4}, "<s> a", "a"},
           {join({{1}, bytes(cat), {2}}), cat + "a", cat + "a"},
           {bytes("\xF0\x9F"), bad + bad, bad + bad},
           {join({bytes("\xF0\x9F"), {2}}), bad + bad + "a", bad + bad + "a"},
           {join({bytes("\xC3\xA9\xFF"), {2}}), bad + bad + bad + "a", bad + bad + bad + "a"},
           {join({bytes("\xC3"), {300}, bytes("\xA9")}), bad + "<s>" + bad, "\xC3\xA9"},
           {join({{1}, bytes(" a")}), " a", " a"},
           {join({bytes(" "), {1, 2}}), " a", " a"},
           {{2, 999, 2}, "aa", "aa"},
           {{}, "", ""}}) {
    CAPTURE(ids);
    CHECK(t.decode(ids, false) == text);
    CHECK(t.decode(ids, true) == skipping);
    CHECK(streamed(t, ids, false) == text);
    CHECK(streamed(t, ids, true) == skipping);
  }
}

TEST_CASE("tokenizer stages - byte tokens come out of the stream when their row ends") {
  const Tokenizer t = load(sentencepiece_file());
  StreamDecoder decoder(t, true);
  CHECK(decoder.push(4) == "a");
  CHECK(decoder.push(byte(0xC3)).empty());
  CHECK(decoder.push(byte(0xA9)).empty());
  CHECK(decoder.push(300).empty());  // left out: the row goes on behind it
  CHECK(decoder.push(4) == "\xC3\xA9 a");
  CHECK(decoder.push(byte('!')).empty());
  CHECK(decoder.finish() == "!");
  CHECK(decoder.push(4) == "a");  // a new text
  CHECK(decoder.push(4) == " a");

  StreamDecoder continued(t, true, StreamDecoder::Start::in_the_middle);
  CHECK(continued.push(4) == " a");
  CHECK(continued.finish().empty());
  CHECK(continued.push(4) == " a");
}

TEST_CASE("tokenizer stages - decoders may lack some of their steps") {
  json file = sentencepiece_file();
  const Ids ids{1, 1, 2, byte('C'), 3};
  const auto decoded = [&](const json& steps) {
    file["decoder"] = sequence("decoders", steps);
    const Tokenizer t = load(file);
    CHECK(streamed(t, ids) == t.decode(ids, false));
    return t.decode(ids, false);
  };
  const json fuse = {{"type", "Fuse"}};
  const json strip = {{"type", "Strip"}, {"content", "-"}, {"start", 3}, {"stop", 0}};
  CHECK(decoded({replace(kBlank, "-"), fuse, strip}) == "a<0x43>b");
  CHECK(decoded({replace(kBlank, "a"), replace("a", "_"), {{"type", "ByteFallback"}}}) == "___Cb");
  CHECK(decoded(json::array()) == std::string(kBlank) + kBlank + "a<0x43>b");
}

// --- Refusals ---

TEST_CASE("tokenizer stages - what is not supported is refused by name") {
  struct Refusal {
    const char* key;
    json value;
    std::string named;
  };
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const json fuse = {{"type", "Fuse"}};
  const json bytes = {{"type", "ByteFallback"}};
  const json blank = replace(kBlank, " ");
  const auto changed = [](json object, const json& changes) {
    object.update(changes);
    return object;
  };
  const auto decoders = [](std::vector<json> steps) { return sequence("decoders", steps); };
  const json good_template = template_with({special("S"), kText});
  const std::vector<Refusal> refusals{
      {"normalizer", {{"type", "Sequence"}}, "normalizer.normalizers = null: must be a list"},
      {"normalizer", sequence("normalizers", {nullptr}), "normalizer.normalizers[0] = null"},
      {"normalizer",
       sequence("normalizers",
                json::array({sequence("normalizers", json::array({{{"type", "NFD"}}}))})),
       "normalizer.normalizers[0].normalizers[0] = \"NFD\""},
      {"normalizer", {{"type", "NFC"}, {"form", 9}}, "normalizer.form = 9"},
      {"normalizer", {{"type", "Prepend"}}, "normalizer.prepend = null: must be a text"},
      {"normalizer", {{"type", "Prepend"}, {"prepend", ""}}, "normalizer.prepend = \"\""},
      {"normalizer", changed(blank, {{"pattern", {{"Regex", "a"}}}}), "normalizer.pattern = "},
      {"normalizer", changed(blank, {{"pattern", {{"String", ""}}}}), "normalizer.pattern = "},
      {"normalizer", changed(blank, {{"pattern", "a"}}), "normalizer.pattern = \"a\""},
      {"normalizer", changed(blank, {{"content", 1}}), "normalizer.content = 1"},

      {"pre_tokenizer",
       {{"type", "Digits"}, {"individual_digits", 1}},
       "pre_tokenizer.individual_digits = 1"},
      {"pre_tokenizer", metaspace({{"replacement", "ab"}}), "pre_tokenizer.replacement = \"ab\""},
      {"pre_tokenizer", metaspace({{"replacement", nullptr}}), "pre_tokenizer.replacement = null"},
      {"pre_tokenizer", metaspace({{"prepend_scheme", "last"}}),
       "pre_tokenizer.prepend_scheme = \"last\""},
      {"pre_tokenizer", metaspace({{"add_prefix_space", false}}),
       "pre_tokenizer.add_prefix_space = false"},
      {"pre_tokenizer", metaspace({{"split", 0}}), "pre_tokenizer.split = 0"},
      {"pre_tokenizer", metaspace({{"invented", true}}), "pre_tokenizer.invented = true"},

      {"post_processor", {{"type", "TemplateProcessing"}}, "post_processor.single = null"},
      {"post_processor", template_with({special("S")}), "must be a list with the Sequence A once"},
      {"post_processor", template_with({kText, kText}), "must be a list with the Sequence A once"},
      {"post_processor", template_with({kText, {{"Sequence", {{"id", "B"}}}}}),
       "post_processor.single[1] = {\"Sequence\":{\"id\":\"B\"}}"},
      {"post_processor", template_with({kText, special("X")}),
       "post_processor.single[1].SpecialToken.id = \"X\""},
      {"post_processor", template_with({kText, {{"SpecialToken", {{"id", 3}}}}}),
       "post_processor.single[1].SpecialToken.id = 3"},
      {"post_processor", changed(good_template, {{"special_tokens", {{"S", {{"ids", {-1}}}}}}}),
       "post_processor.single[0].SpecialToken.id = -1"},
      {"post_processor", changed(good_template, {{"special_tokens", {{"S", {{"ids", {999}}}}}}}),
       "post_processor.special_tokens = 999: must be the id of a token"},
      {"post_processor", sequence("processors", {good_template, good_template}),
       "post_processor.processors[1] = \"TemplateProcessing\": must be there only once"},
      {"post_processor", sequence("processors", {{{"type", "BertProcessing"}}}),
       "post_processor.processors[0] = \"BertProcessing\""},

      {"decoder", fuse, "decoder = \"Fuse\": must be \"ByteLevel\" or a \"Sequence\""},
      {"decoder", decoders({{{"type", "ByteLevel"}}}), "decoder.decoders[0] = \"ByteLevel\""},
      {"decoder", decoders({{{"type", "Metaspace"}}}),
       "decoder.decoders[0] = \"Metaspace\": must be one of Replace, ByteFallback, Fuse, Strip"},
      {"decoder", decoders({bytes, blank}),
       "decoder.decoders[1] = \"Replace\": must be in the order"},
      {"decoder", decoders({fuse, bytes}), "decoder.decoders[1] = \"ByteFallback\""},
      {"decoder", decoders({fuse, fuse}), "decoder.decoders[1] = \"Fuse\""},
      {"decoder", decoders({blank, strip}),
       "decoder.decoders[1] = \"Strip\": must be in the order"},
      {"decoder", decoders({fuse, strip, strip}), "decoder.decoders[2] = \"Strip\""},
      {"decoder", decoders({fuse, changed(strip, {{"stop", 1}})}), "decoder.decoders[1].stop = 1"},
      {"decoder", decoders({fuse, changed(strip, {{"start", -1}})}),
       "decoder.decoders[1].start = -1"},
      {"decoder", decoders({fuse, changed(strip, {{"content", "ab"}})}),
       "decoder.decoders[1].content = \"ab\""},
      {"decoder", decoders({changed(blank, {{"pattern", {{"Regex", "a"}}}})}),
       "decoder.decoders[0].pattern = "},
  };
  CHECK(refusal(sentencepiece_file()) == "not refused");
  for (const auto& [key, value, named] : refusals) {
    json file = sentencepiece_file();
    file[key] = value;
    CAPTURE(key, value.dump());
    CHECK_THAT(refusal(file), ContainsSubstring(named));
  }
}

}  // namespace
}  // namespace tp
