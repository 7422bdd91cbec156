#include "engine_options.h"

namespace tp {

std::vector<ExtraOption> engine_flags(EngineOptions& engine) {
  return {
      {"--model", &engine.model,
       "Hugging Face model folder (default: the bundled models/austen-5m)"},
      {"--prompt", &engine.prompts, "text to go on with; may be repeated"},
      {"--prompt-ids", &engine.prompt_ids, "the same as token ids, 1,2,3; may be repeated"},
      {"--prompt-file", &engine.prompt_file,
       "file with a prompt per line, plain or as a JSON object with sampling of its own; - reads "
       "standard input"},
      {"--chat", &engine.chat,
       "answer prompts as a chat model was trained to: chatml (Qwen, SmolLM2, ...) or llama3"},
      {"--system", &engine.system, "system text of the chat (default: the model's own)"},
      {"--max-tokens", &engine.max_tokens, "new tokens per prompt"},
      {"--ignore-eos", &engine.ignore_eos, "go on after the end of the text"},
      {"--temperature", &engine.temperature, "0: always the most likely token (default)"},
      {"--top-k", &engine.top_k, "sample among the k most likely tokens; 0 or -1: off"},
      {"--top-p", &engine.top_p,
       "sample among the most likely tokens that reach this probability; 1: off"},
      {"--sampling", &engine.sampling,
       "model: take temperature, top-k and top-p from generation_config.json"},
      {"--max-model-len", &engine.max_model_len,
       "tokens of one sequence in the KV cache, where the last token of a text needs no place "
       "(default: "
       "what the model was trained for, at most 4096)"},
      {"--max-num-seqs", &engine.max_num_seqs, "sequences that run at the same time (default: 16)"},
      {"--max-num-batched-tokens", &engine.max_num_batched_tokens,
       "tokens of all sequences in one step (default: 512)"},
      {"--chunked-prefill-size", &engine.chunked_prefill_size,
       "prompt tokens of one sequence in one step (default: as many as fit); 0: prompts are run "
       "whole"},
      {"--block-size", &engine.block_size, "tokens in one block of the KV cache"},
      {"--kv-blocks", &engine.kv_blocks,
       "blocks of the KV cache (default: what max-num-seqs sequences of max-model-len need)"},
      {"--kv-memory-mib", &engine.kv_memory_mib,
       "the same as memory of each rank; the rank with the fewest blocks limits all"},
      {"--no-plan-hash", &engine.no_plan_hash,
       "do not compare what the ranks are about to run; to see what the comparison is good for"},
      {"--enforce-eager", &engine.enforce_eager,
       "on a GPU: launch the operations of every step one by one, never a captured step as a "
       "whole"},
      {"--show-batch", &engine.show_batch,
       "print the plan of this step, counted from 1, as the ranks read it"},
      {"--compare", &engine.compare,
       "with one device: tokens, layers (every module of every layer) or none"},
      {"--explain-load", &engine.explain_load,
       "print which bytes of the weight files each rank reads, load them, and generate nothing"}};
}

}  // namespace tp
