"""Tests brim ops: the operations, and the backends that implement them."""


from support import USAGE, Case, main


class Operations(Case):
    def test_every_operation_has_a_signature_and_is_on_reference(self):
        found = self.brim("ops", "--json").json["operations"]
        self.assertEqual([op["name"] for op in found], sorted(op["name"] for op in found))
        for op in found:
            self.assertIn(" -> ", op["tensors"], op["name"])
            self.assertIn("reference", op["backends"], op["name"])

    def test_operations_with_gradients_have_shapes(self):
        for op in self.brim("ops", "--json").json["operations"]:
            if op["gradient"]:
                for side in op["tensors"].split(" -> "):
                    self.assertIn("[", side, op["name"])

    def test_cpu_has_every_operation_of_reference(self):
        found = self.brim("ops", "--json").json["operations"]
        if not any("cpu" in op["backends"] for op in found):
            self.skipTest("backend cpu was not built")
        # These fusions are for GPUs. Backends that lack them fuse relu with the product before it.
        fused = {name + end for name in ("dropout+relu", "max_pool2d+relu") for end in ("", "_grad")}
        self.assertEqual({op["name"] for op in found if "cpu" not in op["backends"]}, fused)

    def test_gradients_flow_through_the_operations_of_models(self):
        flows = {op["name"]: op["gradient"] for op in self.brim("ops", "--json").json["operations"]}
        for name in ("conv2d", "conv_transpose2d", "upsample2d", "linear", "relu", "max_pool2d",
                     "softmax_cross_entropy"):
            self.assertTrue(flows[name], name)
        for name in ("conv2d_grad_input", "upsample2d_grad", "adamw", "classification_metrics"):
            self.assertFalse(flows[name], name)

    def test_the_text_has_a_line_an_operation(self):
        lines = self.brim("ops").out.splitlines()
        found = self.brim("ops", "--json").json["operations"]
        self.assertEqual(lines[0].split()[:2], ["operation", "gradient"])
        self.assertIn("reference", lines[0].split())
        self.assertEqual([line.split()[0] for line in lines[1:]], [op["name"] for op in found])
        self.assertTrue(all(line.endswith(op["tensors"]) for line, op in zip(lines[1:], found, strict=True)))

    def test_one_can_be_requested(self):
        lines = self.brim("ops", "linear").out.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[1].startswith("linear "), lines)
        self.assert_error(self.brim("ops", "lienar", status=USAGE), "no operation 'lienar'")
        self.assert_error(self.brim("ops", "lienar", status=USAGE), "did you mean 'linear'?")
        self.assert_error(self.brim("ops", "conv1d", status=USAGE), "brim_conv1d of brim/model.h is made of 'conv2d'")
        self.assert_error(self.brim("ops", "a", "b", status=USAGE), "unexpected 'b': brim ops takes one operation")


if __name__ == "__main__":
    main()
