// Llama 2 and 3 (Touvron et al. 2023, arXiv 2302.13971; transformers' modeling_llama).
#include "common/model_spec/model_family.h"

namespace tandem {
namespace {
constexpr std::string_view kLlamaFalseKeys[] = {"attention_bias", "mlp_bias"};
}  // namespace

extern const ModelFamily kLlamaFamily = {.architecture = "LlamaForCausalLM",
                                         .gguf_interleaves_heads = true,
                                         .exported_false = kLlamaFalseKeys};

}  // namespace tandem
