"""What a person sees while runs go on."""
