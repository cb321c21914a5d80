/* The chat templates that come with brim, for models without a template. Marks {% generation %} enclose an answer and
 * the token that ends it. See template.h. */
#include <string.h>

#include "template.h"

static const struct {
  const char *name, *text;
} shipped[] = {
    /* used by many models since GPT-3.5 */
    {"chatml", "{%- for message in messages -%}\n"
               "{{- '<|im_start|>' + message.role + '\\n' -}}\n"
               "{%- if message.role == 'assistant' -%}\n"
               "{% generation %}{{- message.content + '<|im_end|>' -}}{% endgeneration %}{{- '\\n' -}}\n"
               "{%- else -%}\n"
               "{{- message.content + '<|im_end|>\\n' -}}\n"
               "{%- endif -%}\n"
               "{%- endfor -%}\n"
               "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}\n"},
    /* the format of Llama 3; https://llama.com/docs/model-cards-and-prompt-formats/meta-llama-3 */
    {"llama3", "{{- bos_token -}}\n"
               "{%- for message in messages -%}\n"
               "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}\n"
               "{%- if message.role == 'assistant' -%}\n"
               "{% generation %}{{- message.content | trim + '<|eot_id|>' -}}{% endgeneration %}\n"
               "{%- else -%}\n"
               "{{- message.content | trim + '<|eot_id|>' -}}\n"
               "{%- endif -%}\n"
               "{%- endfor -%}\n"
               "{%- if add_generation_prompt -%}\n"
               "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}\n"
               "{%- endif -%}\n"},
    /* for base models, whose only special token ends a text; similar to Stanford Alpaca */
    {"alpaca", "{%- for message in messages -%}\n"
               "{%- if message.role == 'system' -%}\n"
               "{{- message.content + '\\n\\n' -}}\n"
               "{%- elif message.role == 'user' -%}\n"
               "{{- '### Instruction:\\n' + message.content + '\\n\\n' -}}\n"
               "{%- elif message.role == 'assistant' -%}\n"
               "{{- '### Response:\\n' -}}\n"
               "{% generation %}{{- message.content + eos_token -}}{% endgeneration %}\n"
               "{%- if not loop.last -%}{{- '\\n\\n' -}}{%- endif -%}\n"
               "{%- else -%}\n"
               "{{- raise_exception('the template alpaca has no role ' + message.role) -}}\n"
               "{%- endif -%}\n"
               "{%- endfor -%}\n"
               "{%- if add_generation_prompt -%}{{- '### Response:\\n' -}}{%- endif -%}\n"}};

const char *template_shipped(const char *name)
{
  for (size_t i = 0; i < sizeof shipped / sizeof shipped[0]; i++)
    if (strcmp(name, shipped[i].name) == 0) return shipped[i].text;
  return NULL;
}
