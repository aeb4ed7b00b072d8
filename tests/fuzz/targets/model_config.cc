// config.json of a model and adapter_config.json of an adapter, from whoever published them.
#include <string>

#include "common/formats/peft/peft_config.h"
#include "common/model_spec/model_spec.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(model_config) {
  const std::string text(input);
  (void)tandem::ParsePeftConfig(text, "adapter_config.json");
  const auto spec = tandem::ParseModelSpec(text, "", "config.json");
  (void)tandem::ParseModelSpec("{}", text, "config.json");
  if (!spec.ok()) return;
  (void)spec->parameters();
  const auto again = tandem::ParseModelSpec(tandem::ModelConfigJson(*spec), "", "config.json");
  if (!again.ok()) __builtin_trap();
}
