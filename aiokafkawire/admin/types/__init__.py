"""Arguments and results of the admin client's operations; `aiokafkawire.admin` exports them."""
