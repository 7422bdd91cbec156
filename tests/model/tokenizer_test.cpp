#include "common/model/tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/error.h"
#include "common/core/random.h"
#include "common/model/byte_level.h"
#include "common/model/json.h"
#include "common/model/split_pattern.h"
#include "common/model/stream_decoder.h"
#include "common/model/tokenizer_file.h"
#include "common/model/utf8.h"
#include "tests/catch.h"
#include "tests/model/tokenizer_files.h"
#include "tests/temp_folder.h"

namespace tp {
namespace {

std::vector<std::string> pieces_of(const std::string& pattern, const std::string& text) {
  std::vector<std::string> pieces;
  SplitPattern(pattern).split(text, pieces);
  return pieces;
}

// --- Merges ---

TEST_CASE("tokenizer - merges happen in order of rank and not from left to right") {
  const Tokenizer t =
      load(file_with({{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}, {"bc", 4}, {"ab", 5}, {"cd", 6}},
                     {"b c", "a b", "c d"}));
  CHECK(t.encode("abc") == Ids{0, 4});
  CHECK(t.encode("abcd") == Ids{0, 4, 3});
  CHECK(t.encode("abd") == Ids{5, 3});
  CHECK(t.encode("ababc") == Ids{5, 0, 4});
  CHECK(t.encode("acd") == Ids{0, 6});
  CHECK(t.encode("bcbc") == Ids{4, 4});
  CHECK(t.encode("dcba") == Ids{3, 2, 1, 0});
  CHECK(t.encode("").empty());
}

TEST_CASE("tokenizer - ignore_merges takes a whole word that is a token") {
  json file =
      file_with({{"x", 0}, {"y", 1}, {"z", 2}, {"xy", 3}, {"yz", 4}, {"xyz", 5}}, {"y z", "x y"});
  CHECK(load(file).encode("xyz") == Ids{0, 4});
  file["model"]["ignore_merges"] = true;
  CHECK(load(file).encode("xyz") == Ids{5});
  CHECK(load(file).encode("xyzx") == Ids{0, 4, 0});
  CHECK(load(file).encode("xy") == Ids{3});
}

TEST_CASE("tokenizer - the leftmost of equal pairs is merged first") {
  const json vocab = {{"a", 0}, {"aa", 1}, {"aaa", 2}, {"aaaa", 3}};
  const Tokenizer t = load(file_with(vocab, {"a a", "aa a", "aa aa"}));
  CHECK(t.encode("aaa") == Ids{2});
  CHECK(t.encode("aaaa") == Ids{3});
  CHECK(t.encode("aaaaa") == Ids{1, 2});
  CHECK(t.encode("aaaaaaa") == Ids{3, 2});
}

TEST_CASE("tokenizer - merges may be texts or pairs") {
  const json vocab = {{"a", 0}, {" ", 1}, {"a ", 2}, {"b", 3}, {"a b", 4}};
  const Tokenizer t = load(file_with(vocab, json::parse(R"([["a", " "], ["a ", "b"]])")));
  CHECK(t.encode("a b") == Ids{4});
  CHECK(t.encode("a a") == Ids{2, 0});
}

// Merges one pair after the other, looking through the whole word each time.
Ids merged_slowly(Ids tokens, const std::vector<Merge>& merges) {
  while (true) {
    std::size_t best_rank = merges.size();
    std::size_t best_position = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      for (std::size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].left == tokens[i] && merges[rank].right == tokens[i + 1]) {
          best_rank = rank;
          best_position = i;
        }
    if (best_rank == merges.size()) return tokens;
    tokens[best_position] = merges[best_rank].result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best_position) + 1);
  }
}

TEST_CASE("tokenizer - random merges agree with merging one pair at a time") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::uint64_t draws = 0;
    const auto random = [&](std::size_t end) { return random_bits(seed, draws++) % end; };
    Bpe::Parts parts;
    std::vector<std::string> tokens;
    for (const char letter : {'a', 'b', 'c'}) tokens.emplace_back(1, letter);
    while (tokens.size() < 40) {
      const std::size_t left = random(tokens.size());
      const std::size_t right = random(tokens.size());
      const std::string result = tokens[left] + tokens[right];
      if (std::ranges::count(tokens, result) > 0) continue;
      parts.merges.push_back({static_cast<std::int32_t>(left), static_cast<std::int32_t>(right),
                              static_cast<std::int32_t>(tokens.size())});
      tokens.push_back(result);
    }
    for (std::size_t i = parts.merges.size() - 1; i > 0; --i)
      std::swap(parts.merges[i], parts.merges[random(i + 1)]);
    for (std::size_t id = 0; id < tokens.size(); ++id)
      parts.vocab.emplace(tokens[id], static_cast<std::int32_t>(id));
    const Bpe bpe(parts);

    for (int repeat = 0; repeat < 30; ++repeat) {
      std::string word;
      Ids letters;
      for (std::size_t length = 1 + random(60); length > 0; --length) {
        letters.push_back(static_cast<std::int32_t>(random(3)));
        word += tokens[static_cast<std::size_t>(letters.back())];
      }
      Ids ids;
      bpe.encode_word(word, ids);
      CAPTURE(seed, word);
      CHECK(ids == merged_slowly(letters, parts.merges));
    }
  }
}

TEST_CASE("tokenizer - a word of 200000 letters is encoded at once") {
  const Tokenizer t = load(file_with({{"a", 0}, {"aa", 1}, {"aaaa", 2}}, {"a a", "aa aa"}));
  CHECK(t.encode(std::string(200'000, 'a')) == Ids(50'000, 2));
}

TEST_CASE("tokenizer - a character without a token is refused and not dropped") {
  const Tokenizer t = load(small_file());
  CHECK_THROWS_WITH(t.encode("ab\xC3\xA9"), ContainsSubstring("'\xC3\xA9' (U+00E9)"));
  CHECK_THROWS_WITH(t.encode("d"), ContainsSubstring("'d' (U+0064)"));
  json file = byte_file();  // SmolLM2 lacks some control characters
  file["model"]["vocab"].erase("\u0104");
  CHECK_THROWS_WITH(load(file).encode("a\x04"),
                    ContainsSubstring("'\u0104' (U+0104), which stands for the byte 04"));
}

// --- Splitting ---

TEST_CASE("tokenizer - each match and each gap is a piece") {
  using Pieces = std::vector<std::string>;
  CHECK(pieces_of("[0-9]{1,3}", "ab12345c") == Pieces{"ab", "123", "45", "c"});
  CHECK(pieces_of("x", "abc") == Pieces{"abc"});
  CHECK(pieces_of("b?", "abc") == Pieces{"a", "b", "c"});  // empty matches cut, too
  CHECK(pieces_of("b?", std::string("\xC3\xA9") + "b") == Pieces{"\xC3\xA9", "b"});
  CHECK(pieces_of("\\d", "a\xD9\xA3") == Pieces{"a", "\xD9\xA3"});  // a digit of Arabic
  CHECK(pieces_of("(?=\xC3\xA9)", "a\xC3\xA9\xC3\xA9") == Pieces{"a", "\xC3\xA9", "\xC3\xA9"});
  CHECK(pieces_of("^.|.$", "ab\ncd") == Pieces{"a", "b", "\n", "c", "d"});  // lines, not the text
}

TEST_CASE("tokenizer - the pattern of GPT-2 splits by Unicode properties") {
  using Pieces = std::vector<std::string>;
  const std::string pattern(kGpt2Pattern);
  CHECK(pieces_of(pattern, "I'm  12 \xE4\xBD\xA0\xE5\xA5\xBD!") ==
        Pieces{"I", "'m", " ", " 12", " \xE4\xBD\xA0\xE5\xA5\xBD", "!"});
  CHECK(pieces_of(pattern, "a\r\n\r\nb") == Pieces{"a", "\r\n\r", "\n", "b"});
  // U+3000 is white space, U+180E is not, and a combining mark is no letter.
  CHECK(pieces_of(pattern, "a\xE3\x80\x80\xE3\x80\x80") == Pieces{"a", "\xE3\x80\x80\xE3\x80\x80"});
  CHECK(pieces_of(pattern, " \xE1\xA0\x8E!") == Pieces{" \xE1\xA0\x8E!"});
  CHECK(pieces_of(pattern, "e\xCC\x81t") == Pieces{"e", "\xCC\x81", "t"});
}

TEST_CASE("tokenizer - what Oniguruma and PCRE2 read differently is refused") {
  struct Pattern {
    std::string pattern;
    std::string refused;
  };
  for (const auto& [pattern, refused] : std::vector<Pattern>{{"\\w", "the escape \\w"},
                                                             {"[\\h]", "the escape \\h"},
                                                             {"a\\", "\\ at end of pattern"},
                                                             {"[a[bc]]", "in a class, ["},
                                                             {"[[:alpha:]]", "in a class, ["},
                                                             {"[a-z&&b]", "in a class, &&"},
                                                             {"[]a]", "the class []"},
                                                             {"[^]a]", "the class []"},
                                                             {"(?m:a.b)", "the group (?m"},
                                                             {"(?<n>a)", "the group (?<"},
                                                             {"(*ACCEPT)", "the group (*A"},
                                                             {"a{2}+", "the repetition {2}+"},
                                                             {"a{2}?", "the repetition {2}?"},
                                                             {"a{,3}", "the repetition {,3}"},
                                                             {"a{", "the repetition {"},
                                                             {"a{2", "the repetition {2"},
                                                             {"a{1,2,3}", "the repetition {1,2,3}"},
                                                             {"\\p{Nothing}", "'\\p{Nothing}'"},
                                                             {"\\p{L", "'\\p{L'"}}) {
    CAPTURE(pattern);
    CHECK_THROWS_WITH(SplitPattern(pattern), ContainsSubstring(refused));
  }
  using Pieces = std::vector<std::string>;
  CHECK(pieces_of("\\p{N}{2}|[^\\[{&(?+]", "12[{3") == Pieces{"12", "[{", "3"});
  CHECK(pieces_of("(?i:'s)|(?=b)|(?<!a)c|(?>d+)", "a'Sabcddac") ==
        Pieces{"a", "'S", "a", "b", "c", "dd", "ac"});
  // The long s folds to s.
  CHECK(pieces_of("(?i:'s)", "it'\xC5\xBF") == Pieces{"it", "'\xC5\xBF"});
}

TEST_CASE("tokenizer - a split that needs a deep stack works and one without end is refused") {
  const std::string many = std::string(500'000, 'a') + "c";
  CHECK(pieces_of("(?:a|b)+", many) == std::vector<std::string>{many.substr(0, 500'000), "c"});
  CHECK_THROWS_WITH(pieces_of("(a*)*c|x", std::string(50, 'a')), ContainsSubstring("limit"));
}

TEST_CASE(
    "tokenizer - ByteLevel writes bytes as characters and may split and put a blank in front") {
  json file = byte_file();
  json& model = file["model"];
  model["vocab"]["\u0120a"] = 256;
  model["vocab"]["\u0120\u0120"] = 257;
  model["merges"] = {"\u0120 a", "\u0120 \u0120"};
  CHECK(load(file).encode("a  a\n") == Ids{'a', ' ', 256, '\n'});
  CHECK(load(file).encode("\xC3\xA9") == Ids{0xC3, 0xA9});

  json& byte_level = file["pre_tokenizer"];
  byte_level["use_regex"] = false;
  CHECK(load(file).encode("a  a") == Ids{'a', ' ', 256});
  CHECK(load(file).encode("   ") == Ids{257, ' '});
  byte_level["add_prefix_space"] = true;
  CHECK(load(file).encode("a a") == Ids{256, 256});
  CHECK(load(file).encode(" a") == Ids{256});
  CHECK(load(file).encode("").empty());

  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "[0-9]"}}}, {"behavior", "Isolated"}},
        byte_level}}};
  CHECK(load(file).encode("a1a") == Ids{256, ' ', '1', 256});  // a blank before each piece
}

// --- Added tokens ---

TEST_CASE("tokenizer - added tokens are found before words and the longest one wins") {
  json file = byte_file();
  file["added_tokens"] = {added("<x>", 300), added("<x><y>", 301, {{"special", true}}),
                          added("\xE4\xBD\xA0", 302), added("ab", 303, {{"normalized", true}}),
                          added("b<", 304)};
  const Tokenizer t = load(file);
  CHECK(t.encode("<x>") == Ids{300});
  CHECK(t.encode("<x><x><y><y>") == Ids{300, 301, '<', 'y', '>'});
  CHECK(t.encode("a<x b") == Ids{'a', '<', 'x', ' ', 'b'});
  CHECK(t.encode("\xE4\xBD\xA0!") == Ids{302, '!'});
  CHECK(t.encode("abab") == Ids{303, 303});
  CHECK(t.encode("ab<x>") == Ids{'a', 304, 'x', '>'});  // "b<" is looked for before "ab"

  CHECK(t.vocab_size() == 305);
  CHECK(t.token_to_id("<x><y>") == 301);
  CHECK(t.token_to_id("\u0120") == ' ');
  CHECK_FALSE(t.token_to_id("nothing").has_value());
  CHECK(t.is_special(301));
  CHECK_FALSE(t.is_special(300));
  CHECK(t.decode(Ids{'a', 301, 300}, false) == "a<x><y><x>");
  CHECK(t.decode(Ids{'a', 301, 300}, true) == "a<x>");
  CHECK(t.decode(Ids{302}, true) == "\xE4\xBD\xA0");
  // Half a character before a special token goes on behind it if that is left out.
  CHECK(t.decode(Ids{0xC3, 301, 0xA9}, true) == "\xC3\xA9");
  CHECK(t.decode(Ids{0xC3, 301, 0xA9}, false) == "\xEF\xBF\xBD<x><y>\xEF\xBF\xBD");
}

TEST_CASE("tokenizer - added tokens may take the white space beside them") {
  json file = byte_file();
  file["added_tokens"] = {added("<l>", 300, {{"lstrip", true}}),
                          added("<r>", 301, {{"rstrip", true}})};
  const Tokenizer t = load(file);
  CHECK(t.encode("a \xE3\x80\x80<l> b") == Ids{'a', 300, ' ', 'b'});
  CHECK(t.encode(std::string("a <r>\t \xC2\xA0") + "b") == Ids{'a', ' ', 301, 'b'});
  CHECK(t.encode("<r>  <l>") == Ids{301, 300});
  CHECK(t.encode(" <l>") == Ids{300});
  CHECK(t.encode("<r> ") == Ids{301});
  CHECK(t.encode("\xE4\xBD\xA0<l>").size() == 4);

  file["added_tokens"].push_back(added("  ", 302));
  const Tokenizer with_blanks = load(file);
  CHECK(with_blanks.encode("<r>  a") == Ids{301, 302, 'a'});
  CHECK(with_blanks.encode("<r>   a") == Ids{301, 302, ' ', 'a'});
  CHECK(with_blanks.encode("<r>  <l>") == Ids{301, 302, 300});
  CHECK(with_blanks.encode("a  <l>") == Ids{'a', 302, 300});

  file["added_tokens"] = {added(" ", 300, {{"lstrip", true}, {"rstrip", true}})};
  CHECK(load(file).encode(std::string(100'000, ' ')) == Ids{300});
}

// --- Decoding ---

TEST_CASE("tokenizer - the stream gives out a character when its last byte has come") {
  json file = byte_file();
  json& vocab = file["model"]["vocab"];
  vocab[bytes_to_characters("\xF0\x9F")] = 256;
  vocab[bytes_to_characters("\x98\xB8")] = 257;
  vocab[bytes_to_characters("\xE4\xBD")] = 258;
  const Tokenizer t = load(file);

  StreamDecoder whole(t, false);
  CHECK(whole.push(256) == "");
  CHECK(whole.push(257) == "\xF0\x9F\x98\xB8");
  CHECK(whole.push('!') == "!");
  CHECK(whole.finish() == "");

  StreamDecoder cut_off(t, false);
  CHECK(cut_off.push(256) == "");
  CHECK(cut_off.finish() == "\xEF\xBF\xBD");
  CHECK(cut_off.finish() == "");
  CHECK(cut_off.push('a') == "a");

  StreamDecoder broken(t, false);
  CHECK(broken.push(258) == "");
  CHECK(broken.push('A') == std::string("\xEF\xBF\xBD") + "A");
  CHECK(broken.push(257) == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(broken.finish() == "");
}

TEST_CASE("tokenizer - an id without a token has no text") {
  json file = small_file();
  file["model"]["vocab"]["z"] = 9;
  const Tokenizer t = load(file);
  CHECK(t.vocab_size() == 10);
  CHECK(t.has_token(9));
  CHECK(t.token_bytes(9) == "z");
  for (const std::int32_t id : {4, 8, 10, -1, std::numeric_limits<std::int32_t>::max(),
                                std::numeric_limits<std::int32_t>::min()}) {
    CHECK_FALSE(t.has_token(id));
    CHECK_FALSE(t.is_special(id));
    CHECK(t.token_bytes(id).empty());
    CHECK(t.decode(Ids{0, id, 9}, true) == "az");
  }
}

std::string utf8_of(std::uint32_t c) {
  const auto last_six_bits_of = [](std::uint32_t bits) {
    return static_cast<char>(0x80 | (bits & 0x3F));
  };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), last_six_bits_of(c)};
  if (c < 0x10000)
    return {static_cast<char>(0xE0 | c >> 12), last_six_bits_of(c >> 6), last_six_bits_of(c)};
  return {static_cast<char>(0xF0 | c >> 18), last_six_bits_of(c >> 12), last_six_bits_of(c >> 6),
          last_six_bits_of(c)};
}

// All proper beginnings of characters; true for those that one more byte completes.
using Beginnings = std::map<std::string, bool>;

Beginnings beginnings_of_characters() {
  Beginnings beginnings;
  for (std::uint32_t c = 0x80; c < 0x110000; c += 64) {  // a block of 64 shares its beginnings
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string character = utf8_of(c);
    for (std::size_t bytes = 1; bytes < character.size(); ++bytes)
      beginnings[character.substr(0, bytes)] = bytes + 1 == character.size();
  }
  return beginnings;
}

// Replaces what is no character, by looking it up in the list of all beginnings.
std::string valid_utf8_by_table(std::string_view bytes, const Beginnings& beginnings) {
  const auto front = [&](std::size_t length) { return std::string(bytes.substr(0, length)); };
  std::string text;
  while (!bytes.empty()) {
    std::size_t begun = 0;
    while (begun < bytes.size() && beginnings.contains(front(begun + 1))) ++begun;
    const bool is_ascii = (bytes[0] & 0x80) == 0;
    const bool is_completed = begun > 0 && beginnings.at(front(begun)) && begun < bytes.size() &&
                              (bytes[begun] & 0xC0) == 0x80;
    const bool is_character = is_ascii || is_completed;
    text += is_character ? front(begun + 1) : "\xEF\xBF\xBD";
    bytes.remove_prefix(is_character ? begun + 1 : std::max<std::size_t>(begun, 1));
  }
  return text;
}

TEST_CASE("tokenizer - random bytes decode to the same text however they are cut into tokens") {
  // Tokens of one byte, and 400 of two to four bytes that like to be parts of characters.
  const Beginnings beginnings = beginnings_of_characters();
  constexpr std::string_view kLikely =
      "aZ\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xE0\xE4\xED\xEF\xF0\xF4\xF5";
  std::uint64_t draws = 0;
  const auto random = [&](std::size_t end) { return random_bits(17, draws++) % end; };
  const auto random_string = [&](std::size_t length) {
    std::string bytes;
    for (; length > 0; --length)
      bytes += random(3) > 0 ? kLikely[random(kLikely.size())] : static_cast<char>(random(256));
    return bytes;
  };
  json file = byte_file();
  json& vocab = file["model"]["vocab"];
  for (int id = 256; id < 656; ++id)
    vocab.emplace(bytes_to_characters(random_string(2 + random(3))), id);
  const Tokenizer t = load(file);

  for (int repeat = 0; repeat < 2000; ++repeat) {
    Ids ids;
    for (std::size_t length = random(20); length > 0; --length)
      ids.push_back(static_cast<std::int32_t>(random(656)));
    std::string bytes;
    for (const std::int32_t id : ids) bytes += t.token_bytes(id);
    Ids byte_ids;
    for (const char byte : bytes) byte_ids.push_back(static_cast<unsigned char>(byte));

    const std::string expected = valid_utf8_by_table(bytes, beginnings);
    CAPTURE(repeat, ids);
    CHECK(t.decode(ids, false) == expected);
    CHECK(streamed(t, ids) == expected);
    CHECK(streamed(t, byte_ids) == expected);
    CHECK(to_valid_utf8(bytes) == expected);
  }
}

TEST_CASE("tokenizer - bytes that are no UTF-8 are encoded as U+FFFD") {
  const Tokenizer t = load(byte_file());
  const Ids replacement{0xEF, 0xBF, 0xBD};
  CHECK(t.encode("\xFF") == replacement);
  CHECK(t.encode("\xF0\x9F") == replacement);
  CHECK(t.encode(std::string("\xE4\xBD") + "A") == Ids{0xEF, 0xBF, 0xBD, 'A'});
  CHECK(t.decode(t.encode("\xED\xA0\x80"), false) == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  const std::string zero("a\0b", 3);
  CHECK(t.decode(t.encode(zero), false) == zero);
}

// --- Refusals ---

TEST_CASE("tokenizer - what is not supported is refused by name") {
  struct Refusal {
    std::string key;    // a JSON pointer into the small file
    json value;         // what is put there
    std::string named;  // what the message must hold
  };
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}};
  const auto split_with = [&](const json& changes) {
    json changed = split;
    changed.update(changes);
    return changed;
  };
  const std::vector<Refusal> refusals{
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer = \"Lowercase\": must be null, \"NFC\""},
      {"/normalizer", "NFC", "normalizer = \"NFC\""},
      {"/decoder", nullptr, "decoder = null: must be \"ByteLevel\""},
      {"/decoder", {{"type", "Metaspace"}}, "decoder = \"Metaspace\""},
      {"/post_processor",
       {{"type", "RobertaProcessing"}},
       "post_processor = \"RobertaProcessing\": must be null"},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer = \"Whitespace\""},
      {"/pre_tokenizer", 7, "pre_tokenizer = 7"},
      {"/pre_tokenizer", {{"type", "Sequence"}}, "pre_tokenizer.pretokenizers = null"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {split, {{"type", "Punctuation"}}}}},
       "pre_tokenizer.pretokenizers[1] = \"Punctuation\""},
      {"/pre_tokenizer", split_with({{"behavior", "Removed"}}),
       "pre_tokenizer.behavior = \"Removed\""},
      {"/pre_tokenizer", split_with({{"invert", true}}), "pre_tokenizer.invert = true"},
      {"/pre_tokenizer", split_with({{"pattern", {{"String", "a"}}}}), "pre_tokenizer.pattern = "},
      {"/pre_tokenizer", split_with({{"pattern", {{"Regex", "(a"}}}}), "the pattern '(a': missing"},
      {"/pre_tokenizer", split_with({{"pattern", {{"Regex", "\\w+"}}}}), "the escape \\w"},
      {"/pre_tokenizer",
       {{"type", "ByteLevel"}, {"use_regex", "no"}},
       "pre_tokenizer.use_regex = \"no\""},
      {"/model/type", "Unigram", "model.type = \"Unigram\""},
      {"/model/byte_fallback", 1, "model.byte_fallback = 1"},
      {"/model/fuse_unk", "yes", "model.fuse_unk = \"yes\""},
      {"/model/dropout", 0.1, "model.dropout = 0.1"},
      {"/model/unk_token", "<unk>",
       "model.unk_token = \"<unk>\": must be null or a token of model.vocab"},
      {"/model/unk_token", 0, "model.unk_token = 0"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix = \"##\""},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix = \"</w>\""},
      {"/model/invented", 3, "model.invented = 3"},
      {"/model/ignore_merges", 1, "model.ignore_merges = 1"},
      {"/model/vocab", nullptr, "model.vocab = null"},
      {"/model/vocab", json::object(), "model.vocab = {}"},
      {"/model/vocab/c", 1, "model.vocab[\"c\"] = 1: must be an id of its own, \"b\" has it"},
      {"/model/vocab/c", -1, "model.vocab[\"c\"] = -1: must be an id from 0"},
      {"/model/vocab/c", 1.5, "model.vocab[\"c\"] = 1.5"},
      {"/model/vocab/c", "2", "model.vocab[\"c\"] = \"2\""},
      {"/model/vocab/c", kTokenIdLimit, "model.vocab[\"c\"] = 10000000"},
      {"/model/vocab/c", std::numeric_limits<std::uint64_t>::max(), "= 18446744073709551615"},
      {"/model/merges", "a b", "model.merges = \"a b\""},
      {"/model/merges/0", "ab", "model.merges[0] = \"ab\": must be two tokens"},
      {"/model/merges/0", "a  b", "model.merges[0] = \"a  b\": must be two tokens"},
      {"/model/merges/0", {"a", "b", "c"}, "model.merges[0] = [\"a\",\"b\",\"c\"]"},
      {"/model/merges/0", "a x", "model.merges[0] = \"a x\": must be of tokens in model.vocab"},
      {"/model/merges/0", "x b", "model.merges[0] = \"x b\": must be of tokens in model.vocab"},
      {"/model/merges/0", "b a", "model.merges[0] = \"b a\": must be of tokens in model.vocab"},
      {"/added_tokens", 5, "added_tokens = 5"},
      {"/added_tokens/0", 5, "added_tokens[0].content = null"},
      {"/added_tokens/0", added("", 7), "added_tokens[0].content = \"\""},
      {"/added_tokens/0", added("<x>", -7), "added_tokens[0].id = -7"},
      {"/added_tokens/0", added("<x>", 2),
       "added_tokens[0].id = 2: must be an id of its own, \"c\""},
      {"/added_tokens/0", added("c", 7), "added_tokens[0].id = 7: must be 2, the id of \"c\""},
      {"/added_tokens/0", added("<x>", 7, {{"single_word", true}}),
       "added_tokens[0].single_word = true"},
      {"/added_tokens/0", added("<x>", 7, {{"lstrip", 1}}), "added_tokens[0].lstrip = 1"},
  };
  CHECK(refusal(small_file()) == "not refused");
  for (const auto& [key, value, named] : refusals) {
    json file = small_file();
    if (key == "/added_tokens/0")
      file["added_tokens"].push_back(value);
    else
      file[json::json_pointer(key)] = value;
    CAPTURE(key, value.dump());
    const std::string message = refusal(file);
    CHECK_THAT(message, ContainsSubstring(named));
    CHECK_THAT(message, ContainsSubstring("tokenizer.json: "));
  }
}

TEST_CASE("tokenizer - options that are off change nothing") {
  json file = small_file();
  json& model = file["model"];
  model.erase("type");  // as in old files
  model["dropout"] = nullptr;
  model["unk_token"] = nullptr;
  model["continuing_subword_prefix"] = "";
  model["end_of_word_suffix"] = "";
  model["fuse_unk"] = false;
  model["byte_fallback"] = false;
  file["truncation"] = {{"max_length", 2}};
  file["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", true}};
  CHECK(load(file).encode("abcabc") == Ids{3, 2, 3, 2});
}

TEST_CASE("tokenizer - all problems of a file are told at once") {
  json file = small_file();
  file["normalizer"] = {{"type", "NFKC"}};
  file["decoder"] = nullptr;
  file["model"]["dropout"] = 0.1;
  file["model"]["merges"] = {"a b", "a z"};
  file["added_tokens"] = {added("<x>", 7), added("<x>", 8)};
  const std::string message = refusal(file);
  for (const char* key :
       {"normalizer", "decoder", "model.dropout", "model.merges[1]", "added_tokens[1].content"})
    CHECK_THAT(message, ContainsSubstring(std::string(": ") + key + " = "));
}

TEST_CASE("tokenizer - a file that is no tokenizer is refused by its path") {
  const TempFolder folder;
  const std::string text = small_file().dump();
  CHECK_THAT(refusal(folder.path() / "missing.json"), ContainsSubstring("missing.json"));
  CHECK_THAT(refusal(folder.path()), ContainsSubstring(folder.path().string()));
  CHECK_THAT(refusal(folder.write("cut.json", text.substr(0, text.size() / 2))),
             ContainsSubstring("cut.json: no valid JSON"));
  CHECK_THAT(refusal(folder.write("list.json", "[1, 2]")), ContainsSubstring("list.json: "));
  CHECK_THAT(refusal(folder.write("empty.json", "")), ContainsSubstring("empty.json: "));
}

TEST_CASE("tokenizer - a folder with another format only is refused with what to do") {
  for (const char* name : {"tokenizer.model", "tekken.json", "vocab.json"}) {
    const TempFolder folder;
    folder.write(name, "not looked into");
    const std::string message = refusal(folder.path() / "tokenizer.json");
    CHECK_THAT(message, ContainsSubstring((folder.path() / "tokenizer.json").string()));
    CHECK_THAT(message, ContainsSubstring(name));
    CHECK_THAT(message, ContainsSubstring("AutoTokenizer.from_pretrained(FOLDER).save_pretrained"));
  }
}

}  // namespace
}  // namespace tp
