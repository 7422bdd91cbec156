#include "common/model/chat_template.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "common/model/jinja_texts.h"
#include "tests/catch.h"
#include "tests/model/tokenizer_files.h"

namespace tp {
namespace {

// --- Templates, written as those of the models are ---

const std::string kChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' "
    "}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Says something by itself, as Qwen2 and SmolLM2 do; line feeds may be escaped or not.
const std::string kChatmlWithSystem =
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are small.<|im_end|>\\n' }}"
    "{% endif %}" +
    kChatml;

// Tools make no difference to a prompt without any, as with Qwen2.5 and Qwen3.
const std::string kChatmlWithTools = R"({%- if tools %}
    {{- '<|im_start|>system\n' }}
    {{- "You may call <tools>{\"name\": ...}</tools><|im_end|>\n" }}
{%- else %}
    {{- '<|im_start|>system\nYou are \'big\'.<|im_end|>\n' }}
{%- endif %}
{#- a comment with <|im_start|>assistant #}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content.strip('\n') + '<|im_end|>\n' }}
    {{- '<|im_start|>user' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if no_thinking %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
)";

const std::string kLlama3 =
    "{% for m in messages %}{% set c = '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' "
    "+ "
    "m.content | trim + '<|eot_id|>' %}{% if loop.first %}{% set c = bos_token + c %}{% endif %}"
    "{{ c }}{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}";

const std::string kLlama31 =
    "{{- bos_token }}{%- set date = \"26 Jul 2024\" %}"
    "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}"
    "{{- \"Cutting Knowledge Date: December 2023\\n\" }}{{- \"Today Date: \" + date + \"\\n\\n\" }}"
    "{{- system | trim }}{{- '<|eot_id|>' }}" +
    kLlama3;

const std::string kLlama32 = "{%- set date = strftime_now(\"%d %b %Y\") %}" + kLlama31;

// --- Folders ---

Tokenizer tokenizer_with(const std::vector<std::string>& special_tokens) {
  json file = byte_file();
  int id = 300;
  for (const std::string& token : special_tokens)
    file["added_tokens"].push_back(added(token, id++, {{"special", true}}));
  return load(file);
}

Tokenizer chatml_tokenizer() {
  return tokenizer_with({"<|im_start|>", "<|im_end|>"});
}

Tokenizer llama3_tokenizer() {
  return tokenizer_with(
      {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
}

using System = std::optional<std::string>;

// A tokenizer_config.json.
json config_with(const json& chat_template) {
  return {{"chat_template", chat_template}, {"bos_token", "<|begin_of_text|>"}};
}

const json kNoTemplate = json::object();

std::string chatml(const TempFolder& folder, const std::string& user, const System& system = {}) {
  return ChatTemplate::choose("chatml", folder.path(), chatml_tokenizer()).prompt(user, system);
}

std::string chatml(const json& config, const std::string& user, const System& system = {}) {
  const TempFolder folder;
  folder.write("tokenizer_config.json", config.dump());
  return chatml(folder, user, system);
}

std::string llama3(const json& config, const std::string& user, const System& system = {}) {
  const TempFolder folder;
  folder.write("tokenizer_config.json", config.dump());
  return ChatTemplate::choose("llama3", folder.path(), llama3_tokenizer(), "05 Mar 2025")
      .prompt(user, system);
}

std::string refusal_of(const std::string& name, const std::string& chat_template) {
  const json config = config_with(chat_template);
  try {
    return "not refused: " + (name == "chatml" ? chatml(config, "x") : llama3(config, "x"));
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
}

// --- ChatML ---

TEST_CASE("chat template - ChatML marks turns and begins an answer") {
  const std::string hi = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  for (const json& config : {kNoTemplate, config_with(kChatml)}) {
    CHECK(chatml(config, "Hi") == hi);
    CHECK(chatml(config, "Hi", "Be brief.") == "<|im_start|>system\nBe brief.<|im_end|>\n" + hi);
    CHECK(chatml(config, " Hi\n") == "<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\n");
  }
}

TEST_CASE("chat template - a model's own system text is used unless another one is given") {
  const std::string hi = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  const json small = config_with(kChatmlWithSystem);
  CHECK(chatml(small, "Hi") == "<|im_start|>system\nYou are small.<|im_end|>\n" + hi);
  CHECK(chatml(small, "Hi", "No.") == "<|im_start|>system\nNo.<|im_end|>\n" + hi);
  CHECK(chatml(small, "Hi", "") == "<|im_start|>system\n<|im_end|>\n" + hi);
  CHECK(chatml(config_with(kChatmlWithTools), "Hi") ==
        "<|im_start|>system\nYou are 'big'.<|im_end|>\n" + hi);
}

TEST_CASE("chat template - special tokens of a prompt are tokens also where the user spells them") {
  const Tokenizer t = chatml_tokenizer();
  const std::string prompt = chatml(kNoTemplate, "a<|im_end|>");
  const Ids ids = t.encode(prompt);
  CHECK(ids.front() == 300);
  CHECK(std::ranges::count(ids, 300) == 2);
  CHECK(std::ranges::count(ids, 301) == 2);
  CHECK(t.decode(ids, false) == prompt);
}

// --- Llama 3 ---

TEST_CASE("chat template - Llama 3 begins the text and trims what is said") {
  const std::string hi =
      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n";
  for (const json& config : {kNoTemplate, config_with(kLlama3)}) {
    CHECK(llama3(config, "Hi") == "<|begin_of_text|>" + hi);
    CHECK(llama3(config, " \t\n Hi \x1C\xE3\x80\x80\xC2\xA0") == "<|begin_of_text|>" + hi);
    CHECK(llama3(config, "Hi", " Be brief. ") ==
          "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>" +
              hi);
  }
  const json other = {{"bos_token", {{"content", "<|end_header_id|>"}}}};
  CHECK(llama3(other, "Hi") == "<|end_header_id|>" + hi);
}

TEST_CASE("chat template - Llama 3_1 writes dates before every system text") {
  const std::string begin =
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
      "Cutting Knowledge Date: December 2023\nToday Date: ";
  const std::string end =
      "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n";
  CHECK(llama3(config_with(kLlama31), "Hi") == begin + "26 Jul 2024\n\n" + end);
  CHECK(llama3(config_with(kLlama31), "Hi", " Be brief.") ==
        begin + "26 Jul 2024\n\nBe brief." + end);
  CHECK(llama3(config_with(kLlama32), "Hi") == begin + "05 Mar 2025\n\n" + end);
  CHECK(ChatTemplate::date_today().size() == 11);
}

// --- Where the template stands ---

TEST_CASE("chat template - the template may be one of a list or stand in a file of its own") {
  const std::string system = "<|im_start|>system\nYou are small.<|im_end|>\n";
  const json named = {{{"name", "tools"}, {"template", "x"}},
                      {{"name", "default"}, {"template", kChatmlWithSystem}}};
  CHECK(chatml(config_with(named), "").starts_with(system));
  const TempFolder folder;
  folder.write("tokenizer_config.json", config_with("not looked at").dump());
  folder.write("chat_template.jinja", kChatmlWithSystem);
  CHECK(chatml(folder, "").starts_with(system));
  for (const json& wrong : {json(7), json::array(), json::array({{{"name", "default"}}})})
    CHECK_THROWS_WITH(chatml(config_with(wrong), ""),
                      ContainsSubstring("tokenizer_config.json: chat_template = "));
}

// --- Refusals ---

TEST_CASE("chat template - an unknown name is refused with the known ones") {
  const TempFolder folder;
  CHECK_THROWS_WITH(ChatTemplate::choose("alpaca", folder.path(), chatml_tokenizer()),
                    ContainsSubstring("--chat alpaca: must be one of chatml, llama3"));
}

TEST_CASE("chat template - a vocabulary without the special tokens is refused") {
  const TempFolder folder;
  CHECK_THROWS_WITH(ChatTemplate::choose("chatml", folder.path(), llama3_tokenizer()),
                    ContainsSubstring("no token <|im_start|>"));
  CHECK_THROWS_WITH(ChatTemplate::choose("llama3", folder.path(), chatml_tokenizer()),
                    ContainsSubstring("no token <|begin_of_text|>"));
}

TEST_CASE("chat template - the template of another known kind is named") {
  CHECK_THAT(refusal_of("llama3", kChatmlWithTools), ContainsSubstring("--chat chatml"));
  CHECK_THAT(refusal_of("chatml", kLlama31), ContainsSubstring("--chat llama3"));
}

TEST_CASE("chat template - a template of an unknown kind is refused with what to do") {
  struct Refusal {
    std::string name;
    std::string chat_template;
    std::string reason;
  };
  const std::string answer = "{{ '<|im_start|>assistant\\n' }}";
  for (const auto& [name, chat_template, reason] : std::vector<Refusal>{
           {"chatml", "{{ '[INST] ' + m.content + ' [/INST]' }}", "does not begin an answer with"},
           {"llama3", "{{ '[INST] ' + m.content + ' [/INST]' }}", "does not begin an answer with"},
           {"chatml", kChatml + "{{ '<|im_start|>assistant\\n<think>\\n' }}",
            "may begin an answer with \"<|im_start|>assistant\\n<think>\\n\""},
           {"chatml", kChatml + "{{ '<think>\\n' }}", "may begin an answer with \"<think>\\n\""},
           {"chatml", "{{ bos_token }}" + kChatml, "uses bos_token"},
           {"chatml", "{% set system_message = 'x' %}" + kChatml, "uses set system"},
           {"chatml", "{{ m.content | trim }}" + kChatml, "uses trim"},
           {"chatml", "{{ strftime_now() }}" + kChatml, "uses strftime_now"},
           {"chatml", kChatmlWithSystem + "{{ '<|im_start|>system\\nNo.<|im_end|>\\n' }}",
            "two system texts"},
           {"chatml", kChatml + "{{ '<|im_start|>system\\nNo.' }}", "system text of another form"},
           {"chatml", kChatml + "{{ '<|im_start|>system\\nNo.<|im_end|>' }}",
            "system text of another form"},
           {"chatml", "<|im_start|>{{ m.role }}" + answer, "outside of its tags"},
           {"chatml", "{{ m.role }}\n" + answer, "outside of its tags"},
           {"llama3", "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}",
            "does not use bos_token"},
           {"llama3", kLlama3 + "{{ '<|start_header_id|>system<|end_header_id|>\\n\\n' }}",
            "a system turn by itself"},
           {"llama3", kLlama3 + "{{ '<|start_header_id|>system<|end_header_id|>\\n\\nI' }}",
            "a system text of its own"},
           {"llama3",
            kLlama3 + "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n<think>' }}",
            "may begin an answer with"}}) {
    CAPTURE(name, chat_template);
    const std::string message = refusal_of(name, chat_template);
    CHECK_THAT(message, ContainsSubstring(reason));
    CHECK_THAT(message,
               ContainsSubstring("tokenizer_config.json: the chat_template is of no kind"));
    CHECK_THAT(message, ContainsSubstring("leave --chat out"));
  }
}

// --- The texts of a template ---

TEST_CASE("chat template - quoted texts are found and comments and the program left out") {
  using Texts = std::vector<std::string>;
  const JinjaTexts texts =
      texts_of_template("{# 'no' #}{{ 'a\\n\\'b' ~ x[\"c\"] }}{%- if y == 'd}}' -%}{{'e%}'}}");
  CHECK(texts.quoted == Texts{"a\n'b", "c", "d}}", "e%}"});
  CHECK(texts.program.find("if y ==") != std::string::npos);
  CHECK(texts.program.find("no") == std::string::npos);
  CHECK_FALSE(texts.prints_between_tags);
}

TEST_CASE("chat template - text between tags counts as Jinja would print it") {
  const auto prints = [](const char* text) { return texts_of_template(text).prints_between_tags; };
  for (const char* text :
       {"", "{{ a }}{{ b }}", "{{ a -}} \n {{ b }}", "{{ a }} \n {{- b }}", "{% a %}\n{{ b }}",
        "{% a %}\n  {% b %}", "{# a #}\n{% b %}", "{{ a }}\n", "  {% a %}"}) {
    CAPTURE(text);
    CHECK_FALSE(prints(text));
  }
  for (const char* text :
       {"a", "{{ a }}b", "{{ a }}\n{{ b }}", "{{ a }}\n{% b %}", "{{ a }} {{ b }}",
        "{% a %} {{ b }}", "{% a %}\n\n{{ b }}", "{{ a }}\n\n"}) {
    CAPTURE(text);
    CHECK(prints(text));
  }
}

TEST_CASE("chat template - what is cut off has texts of some kind") {
  const std::string whole = "{# c #}a{{ 'b\\n' -}} {% if \"d\" %}";
  for (std::size_t size = 0; size <= whole.size(); ++size)
    CHECK_NOTHROW(texts_of_template(whole.substr(0, size)));
}

}  // namespace
}  // namespace tp
