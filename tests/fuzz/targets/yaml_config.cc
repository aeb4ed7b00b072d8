// A config file, and its first line as --set.
#include <string>

#include "common/config/config.h"
#include "common/config/loaded_config.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(yaml_config) {
  const tandem::fuzz::InputFile file(input);
  const auto loaded = tandem::LoadConfig(file.path(), {});
  if (loaded.ok()) (void)tandem::DiffConfig(std::string(input), loaded->config);
  (void)tandem::LoadConfig("", {std::string(input.substr(0, input.find('\n')))});
}
