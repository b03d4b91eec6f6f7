import pytest
import torch
from cofre import MaskedDenoiser, cka_profile, convert_mdlm, linear_cka
from cofre.convert import start_near_identity


def test_converted_blocks_are_those_of_the_stack(plain):
    model = plain(blocks=5, cond_dim=8)
    converted = convert_mdlm(model, (0, 2, 4))
    for part, layer in ((converted.pre_blocks, 0), (converted.shared_blocks, 2), (converted.post_blocks, 4)):
        for a, b in zip(part[0].parameters(), model.blocks[layer].parameters(), strict=True):
            assert torch.equal(a, b)
    for name in ("embedding.weight", "final.linear.weight", "final.norm.weight", "timestep.network.0.weight"):
        assert torch.equal(converted.state_dict()[name], model.state_dict()[name])


def test_initialised_projections_are_nearly_the_identity(plain):
    converted = convert_mdlm(plain(), (0, 1, 2))
    h, g = 0.3 * torch.randn(2, 12, 16), 0.3 * torch.randn(2, 12, 16)
    torch.testing.assert_close(converted.inject(h, g), 0.9 * h + 0.1 * g, atol=2e-3, rtol=0)
    torch.testing.assert_close(converted.project(h), h)


def test_one_iteration_of_a_converted_model_is_nearly_the_three_layers(plain):
    """With share 0 only the GELU's curvature is left between the two."""
    model = plain(blocks=4)
    with torch.no_grad():
        model.embedding.weight.mul_(0.3)
    converted = convert_mdlm(model, (0, 2, 3)).eval()
    start_near_identity(converted, share=0.0)
    three = MaskedDenoiser(7, 12, 16, 2, 3).eval()
    three.load_state_dict(converted.state_dict(), strict=False)
    for block, layer in zip(three.blocks, (0, 2, 3), strict=True):
        block.load_state_dict(model.blocks[layer].state_dict())
    z = torch.randint(8, (4, 12))
    torch.testing.assert_close(converted(z, iterations=1).logits, three(z).logits, atol=0.02, rtol=0)


def test_uninitialised_projections_are_new(plain):
    model = plain()
    torch.manual_seed(0)
    converted = convert_mdlm(model, (0, 1, 2), initialise_projections=False)
    h = torch.randn(1, 12, 16)
    assert (converted.project(h) - h).abs().max() > 0.1


@pytest.mark.parametrize("layers", [(0, 1, 3), (-1, 1, 2)])
def test_layers_out_of_range(plain, layers):
    with pytest.raises(ValueError, match=r"layers must be three of 0 … 2, got"):
        convert_mdlm(plain(), layers)


def test_only_stacks_can_be_converted(fixed_point, unchecked):
    with pytest.raises(TypeError, match="got FixedPointDenoiser"):
        convert_mdlm(fixed_point())
    with pytest.raises(ValueError, match="share must lie in"):
        start_near_identity(fixed_point(), 1.5)


def test_cka_is_invariant_to_rotation_scale_and_shift():
    x = torch.randn(200, 6)
    q, _ = torch.linalg.qr(torch.randn(6, 6))
    assert linear_cka(x, -3.0 * x @ q + 5.0) == pytest.approx(1.0)
    assert linear_cka(x, torch.randn(200, 6)) < 0.2


def test_cka_by_hand():
    x = torch.tensor([[1.0], [-1.0], [0.0], [0.0]])
    y = torch.tensor([[1.0], [0.0], [-1.0], [0.0]])
    assert linear_cka(x, y) == pytest.approx(0.25)  # squared correlation of 1 / 2


def test_cka_refuses_what_it_cannot_compare():
    with pytest.raises(ValueError, match="constant"):
        linear_cka(torch.ones(5, 2), torch.randn(5, 2))


def test_profile_is_symmetric_with_ones(plain):
    profile = cka_profile(plain(registers=1), torch.randint(8, (6, 12)))
    torch.testing.assert_close(profile, profile.T)
    torch.testing.assert_close(profile.diagonal(), torch.ones(3))
    assert float(profile[0, 1]) < 1.0
