// A chat template from a model's folder, rendered over a conversation that has all shapes of
// values.
#include <nlohmann/json.hpp>

#include "common/text/chat_template.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(jinja) {
  const auto parsed = tandem::ChatTemplate::Parse(std::string(input));
  if (!parsed.ok()) return;
  tandem::ChatInputs inputs;
  inputs.messages = {{{"role", "system"}, {"content", "Be brief."}},
                     {{"role", "user"}, {"content", "2 + 3?\n\xC3\xA9"}},
                     {{"role", "assistant"}, {"content", "5"}, {"n", {1, 2.5, nullptr, true}}}};
  inputs.tools = {{{"name", "add"}, {"parameters", {{"a", "int"}, {"b", "int"}}}}};
  inputs.add_generation_prompt = true;
  inputs.bos_token = "<s>";
  inputs.eos_token = "</s>";
  inputs.now = absl::FromUnixSeconds(1'700'000'000);
  (void)parsed->Render(inputs);
}
