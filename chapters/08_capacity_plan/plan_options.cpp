#include "plan_options.h"

namespace tp {

std::vector<ExtraOption> plan_flags(PlanOptions& o) {
  return {
      {"--model", &o.model,
       "config.json or model folder (default: models/shapes/llama-3-70b; with --verify the bundled "
       "model)"},
      {"--hidden-size", &o.hidden_size,
       "this and the following stand for keys of config.json, instead of --model or in place of "
       "its values"},
      {"--intermediate-size", &o.intermediate_size, "see --hidden-size"},
      {"--num-hidden-layers", &o.num_hidden_layers, "see --hidden-size"},
      {"--num-attention-heads", &o.num_attention_heads, "see --hidden-size"},
      {"--num-key-value-heads", &o.num_key_value_heads, "see --hidden-size"},
      {"--head-dim", &o.head_dim, "see --hidden-size"},
      {"--vocab-size", &o.vocab_size, "see --hidden-size"},
      {"--max-position-embeddings", &o.max_position_embeddings, "see --hidden-size"},
      {"--model-type", &o.model_type, "family of models: llama (default), mistral, qwen2, qwen3"},
      {"--tie-word-embeddings", &o.tie_word_embeddings, "lm_head is the embedding"},
      {"--card", &o.card, "GPU, for example h100-80g, a100-40g, rtx-4090 (default: a100-80g)"},
      {"--card-memory-gib", &o.card_memory_gib, "its memory instead"},
      {"--cards", &o.cards,
       "how many cards the machine has: every tp and pp on them is planned (default: every usable "
       "tp on one stage)"},
      {"--pp,--pipeline-parallel-size", &o.pp,
       "stages (default: 1; with --cards, as many as there is room for)"},
      {"--max-model-len", &o.max_model_len,
       "tokens of each request (default: what the model was trained for, at most 8192)"},
      {"--concurrency", &o.concurrency, "requests at the same time (default: 16; 4 with --verify)"},
      {"--quant-group", &o.quant_group,
       "weights that share a scale with fp8, int8 and int4 (default: 128)"},
      {"--block-size", &o.block_size, "tokens in one block of the KV cache"},
      {"--context-mib", &o.context_mib,
       "overhead of each card: driver and libraries (default: 500)"},
      {"--communication-mib", &o.communication_mib,
       "overhead of each card: communication buffers (default: 300)"},
      {"--activations-mib", &o.activations_mib,
       "overhead of each card: activations and workspace (default: 1024)"},
      {"--articles", &o.articles,
       "show the tables of the articles and each sum by hand for a model of yours too"},
      {"--verify", &o.verify,
       "run the model on this machine and compare what its ranks allocate with the plan"}};
}

}  // namespace tp
